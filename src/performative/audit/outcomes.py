"""Corrections if the model decided whose outcome is observed: labeled rows that represent everyone."""

import dataclasses
from typing import NamedTuple

import numpy as np
from scipy import stats

from performative.audit.draws import Draw
from performative.audit.log import ClientLog
from performative.audit.missing import SEEN, compare
from performative.audit.moments import Moments
from performative.audit.summaries import Summaries
from performative.audit.weighted import Weighted

# Minimum number of labeled rows (effective ones if weighted) of a client under a deployment.
LEAST = 20
LABEL = "label"


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """Which rows to use, and with which weights.

    Attributes:
        kind: "propensity" (1 / logged propensity), "strata" (1 / chance[cell, accepted, side]), or "always": people
            whom every deployed model accepts, with weight 1
        source: where the probabilities come from, in words
    """

    kind: str
    source: str
    chance: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Outcomes:
    """The result of a correction.

    Attributes:
        logs: features and label by client, count = effective rows (sum w)^2 / sum w^2; only clients that can be tested
        coverage: share of all people that they represent, the minimum over clients and deployments
        effective: the smallest and largest effective sample size of a client under a deployment
        why: why they cannot be used, "" if they can
    """

    logs: dict[str, ClientLog]
    coverage: float
    effective: tuple[float, float]
    why: str


class _Cells(NamedTuple):
    """Weighted moments by cell: sum w, sum w^2, the weighted mean and the weighted centered squares."""

    weight: np.ndarray
    square: np.ndarray
    mean: np.ndarray
    squares: np.ndarray


def correct(
    seen: Summaries, plan: Plan, kept: Draw | None, seed: int, always: tuple[Moments, Moments] | None = None,
    weighted: Weighted | None = None,
) -> Outcomes:  # fmt: skip
    """Weighted moments of labeled rows (of all rows if there is no label), as logs.

        mean = sum w z / sum w,   cov = sum w (z - mean)(z - mean)' / sum w,   w = 1 / chance        (Hajek 1971)

    Args:
        kept: rows to keep in the logs, None for none; always, weighted: the sums that these plans need
    """
    many = len(seen.deployments.names)
    rows = _people(seen.labeled, seen.unlabeled)
    people = rows if always is None else _people(*always)
    cells = _always(always[0]) if always is not None else (
        _strata(seen.labeled, plan.chance) if plan.chance is not None else _logged(weighted, seen)
    )  # fmt: skip
    with np.errstate(divide="ignore", invalid="ignore"):
        effective = np.where(cells.square > 0, cells.weight**2 / cells.square, 0.0)
        cov = cells.squares / cells.weight[:, None, None] * (effective / (effective - 1))[:, None, None]
    there = rows >= 2
    coverage = float(np.min(people[there] / rows[there], initial=1.0)) if plan.kind == "always" else 1.0
    some = effective[there]
    span = (float(some.min(initial=np.inf)), float(some.max(initial=0.0)))
    logs = {}
    names = (*seen.columns.features, *([LABEL] if seen.columns.label else []))
    for i, name in enumerate(seen.clients):
        own = np.arange(i * many, (i + 1) * many)[there[i * many : (i + 1) * many]]
        if not len(own) or np.any(effective[own] < LEAST):
            continue
        t = own - i * many
        logs[name] = ClientLog(
            seen.deployments.theta[t], seen.deployments.time[t], effective[own], cells.mean[own], cov[own],
            _thinned(kept, plan, own, seed, seen), names, seen.deployments.parameters, name,
        )  # fmt: skip
    return Outcomes(logs, coverage, span, _why(seen, plan, logs, span, always, weighted))


def _people(labeled: Moments, unlabeled: Moments) -> np.ndarray:
    """[C T] number of rows, labeled or not."""
    return labeled.by_cell()[0] + unlabeled.by_cell()[0]


def _always(labeled: Moments) -> _Cells:
    count, mean, squares = labeled.by_cell()
    return _Cells(count, count, mean, squares)


def _strata(labeled: Moments, chance: np.ndarray) -> _Cells:
    """All rows of a stratum have the same weight, so its moments suffice.

    mean = sum_s w_s n_s m_s / sum_s w_s n_s,      S = sum_s w_s (S_s + n_s (m_s - mean)(m_s - mean)')
    """
    many, cells = len(labeled.deployments), len(labeled.clients) * len(labeled.deployments)
    cell = labeled.client * many + labeled.deployment
    each = chance.reshape(cells, -1)[cell, labeled.stratum]
    w = np.where(each > 0, 1 / np.where(each > 0, each, 1.0), 0.0)
    weight, square = (np.bincount(cell, part * labeled.count, minlength=cells) for part in (w, w**2))
    origin = labeled.by_cell()[1]
    shift, squares = np.zeros_like(origin), np.zeros((*origin.shape, origin.shape[1]))
    np.add.at(shift, cell, (w * labeled.count)[:, None] * (labeled.mean - origin[cell]))
    mean = origin + shift / np.maximum(weight, 1e-300)[:, None]
    away = labeled.mean - mean[cell]
    between = labeled.count[:, None, None] * away[:, :, None] * away[:, None, :]
    np.add.at(squares, cell, w[:, None, None] * (labeled.squares + between))
    return _Cells(weight, square, mean, squares)


def _logged(weighted: Weighted | None, seen: Summaries) -> _Cells:
    assert weighted is not None
    whole = weighted.dense(seen.clients, len(seen.deployments.names))
    weight = np.maximum(whole.weight, 1e-300)
    shift = whole.first / weight[:, None]
    squares = whole.second - weight[:, None, None] * shift[:, :, None] * shift[:, None, :]
    return _Cells(whole.weight, whole.square, whole.origin + shift, squares)


def _thinned(kept: Draw | None, plan: Plan, cells: np.ndarray, seed: int, seen: Summaries) -> np.ndarray | None:
    """Thin weighted rows to an unweighted sample: a row of weight w stays with probability w / max w."""
    if kept is None:
        return None
    use = kept.labeled if seen.columns.label else None
    chance = np.ones(len(kept.cell))
    if plan.kind == "propensity":
        chance = kept.chance
    elif plan.chance is not None:
        chance = plan.chance.reshape(seen.cells, -1)[kept.cell, kept.stratum]
    rows = kept.of(cells, use, np.column_stack([kept.rows, chance]))
    rows, chance = rows[..., :-1], rows[..., -1]
    if not rows.size:
        return rows
    least = np.min(np.where(np.isnan(chance), np.inf, chance), axis=1, keepdims=True)
    drawn = np.random.default_rng([seed, *cells]).random(chance.shape)
    return np.where((drawn < least / chance)[..., None], rows, np.nan)


def _why(
    seen: Summaries, plan: Plan, logs: dict[str, ClientLog], span: tuple[float, float],
    always: tuple[Moments, Moments] | None, weighted: Weighted | None,
) -> str:  # fmt: skip
    if not logs:
        who = "whom every deployed model accepts" if plan.kind == "always" else "with a label, weighted"
        return f"people {who} are too few: {span[0]:.0f} (effective) rows under some deployment; {LEAST} are needed"
    # Strata were already compared with each other when the plan was made.
    name, p = ("", 1.0) if plan.kind == "strata" else _balance(seen, always, weighted)
    if p <= SEEN:
        rest = "among them" if plan.kind == "always" else "after weighting"
        return f"{rest}, people with a label still differ from those without in {name} (p = {p:.1g})"
    return ""


def _balance(seen: Summaries, always: tuple[Moments, Moments] | None, weighted: Weighted | None) -> tuple[str, float]:
    """The feature in which the selected rows differ most from everyone they represent, and its p-value.

    With weights w, the variance of the weighted mean's offset from the overall mean is
    sum w (w - 1)(x - mean)^2 / N^2.
    """
    features = seen.columns.features
    k = len(features)
    if always is not None:
        counts = np.concatenate([part.count for part in always])
        center = np.average(np.concatenate([part.mean[:, :k] for part in always]), axis=0, weights=counts)
        inside, outside = (_sums_of(part, center) for part in always)
        j, p = compare(inside, outside).first("depends")
        return features[j], p
    assert weighted is not None
    everything = [*(part.by_cell() for part in (seen.labeled, seen.unlabeled))]
    people = everything[0][0] + everything[1][0]
    with np.errstate(divide="ignore", invalid="ignore"):
        everybody = sum(n[:, None] * mean[:, :k] for n, mean, _ in everything) / people[:, None]
        whole = weighted.dense(seen.clients, len(seen.deployments.names))
        about = whole.moved(np.where(np.isfinite(everybody), everybody, 0.0) if whole.origin.shape[1] == k else (
            np.column_stack([np.nan_to_num(everybody), whole.origin[:, k:]])
        ))  # fmt: skip
        gap = about.first[:, :k] / about.weight[:, None]
        single = np.diagonal(about.second, axis1=1, axis2=2)[:, :k]
        variance = (about.doubled_squares[:, :k] - single) / people[:, None] ** 2
    good = np.isfinite(gap) & (variance > 0)
    weight = np.where(good, 1 / np.where(good, variance, 1.0), 0.0)
    z = np.sum(np.where(good, gap, 0.0) * weight, axis=0) / np.sqrt(np.maximum(weight.sum(axis=0), 1e-300))
    squares = np.where(good, gap**2 * weight, 0.0).sum(axis=0)
    p = np.minimum(2 * stats.norm.sf(np.abs(z)), stats.chi2.sf(squares, np.maximum(good.sum(axis=0), 1)))
    return features[int(p.argmin())], min(1.0, 2 * k * float(p.min()))


def _sums_of(moments: Moments, center: np.ndarray) -> np.ndarray:
    """[3, cells, k] n, sums and squares of the features about a center."""
    count, mean, squares = moments.by_cell()
    k, n = len(center), count[:, None]
    away = mean[:, :k] - center
    return np.stack([n + 0 * away, n * away, np.diagonal(squares, axis1=1, axis2=2)[:, :k] + n * away**2])

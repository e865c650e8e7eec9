"""Merge the sums of several sources, and suppress cells with few people."""

import dataclasses
import functools
from collections import Counter
from collections.abc import Sequence

import numpy as np

from performative.audit.missing import Sums, merge_sums
from performative.audit.moments import Moments, combine, merge
from performative.audit.schema import LogError
from performative.audit.summaries import Summaries
from performative.audit.weighted import Weighted, merge_weighted

# The settings that determine what the sums mean; the rest concern files.
_SETTINGS = ("clip", "decision", "loss", "missing_labels", "parameters", "penalty")
_HIDDEN = 8  # the stratum of people whose decision and score are withheld


def merge_summaries(parts: Sequence[Summaries]) -> Summaries:
    """Merge sums over all rows, exact up to rounding; refuses sums that are not comparable."""
    if not parts:
        raise ValueError("merge_summaries needs at least one part; got none.")
    return functools.reduce(_two, parts)


def _two(a: Summaries, b: Summaries) -> Summaries:
    _check_alike(a, b)
    many = len(a.deployments.names)
    clients = tuple(sorted({*a.clients, *b.clients}))
    always = None
    if a.always is not None and b.always is not None:
        always = (_with(merge(a.always[0], b.always[0]), clients), _with(merge(a.always[1], b.always[1]), clients))
    weighted = None
    if a.weighted is not None and b.weighted is not None:
        weighted = merge_weighted(a.weighted, b.weighted, many)
    counts: Counter[tuple[str, str, str, int, int]] = Counter(a.counts)
    counts.update(b.counts)
    scores = tuple(merge_sums(x, y) for x, y in zip(a.scores, b.scores, strict=True))
    promise = None if a.promise is None or b.promise is None else (
        max(a.promise[0], b.promise[0]), max(a.promise[1], b.promise[1])
    )  # fmt: skip
    return dataclasses.replace(
        a,
        labeled=merge(a.labeled, b.labeled), unlabeled=merge(a.unlabeled, b.unlabeled),
        scores=(scores[0], scores[1]), incomplete=merge_sums(a.incomplete, b.incomplete), counts=dict(counts),
        always=always, weighted=weighted, odd=a.odd or b.odd, promise=promise, noise=max(a.noise, b.noise),
        suppressed=(a.suppressed[0] + b.suppressed[0], a.suppressed[1] + b.suppressed[1]),
        **{name: getattr(a, name) + getattr(b, name)
           for name in ("rows", "dropped", "empty", "unknown", "undecided", "no_group", "no_chance")},
    )  # fmt: skip


def _with(moments: Moments, clients: tuple[str, ...]) -> Moments:
    return moments.for_clients(clients)


def _check_alike(a: Summaries, b: Summaries) -> None:
    def refuse(what: str, one: object, other: object) -> None:
        raise LogError(f"merge: {what} must be the same in all files; got {one!r} and {other!r}.")

    for name in ("features", "label"):
        if getattr(a.columns, name) != getattr(b.columns, name):
            refuse(name, getattr(a.columns, name), getattr(b.columns, name))
    if a.deployments.names != b.deployments.names:
        refuse("deployments", a.deployments.names, b.deployments.names)
    if a.deployments.parameters != b.deployments.parameters:
        refuse("parameters", a.deployments.parameters, b.deployments.parameters)
    if not np.allclose(a.deployments.theta, b.deployments.theta, rtol=1e-9, atol=1e-12):
        at = int(np.argmax(np.abs(a.deployments.theta - b.deployments.theta).max(axis=1)))
        name, one, other = a.deployments.names[at], a.deployments.theta[at], b.deployments.theta[at]
        raise LogError(
            f"merge: the model of {name!r} is {one.tolist()} in one file and {other.tolist()} in another. Provide "
            "theta, or scoring files with the same rows: fits on different rows give different summaries of one model."
        )
    if not np.array_equal(a.deployments.time, b.deployments.time):
        refuse("times of deployments", a.deployments.time.tolist(), b.deployments.time.tolist())
    if a.decides != b.decides:
        refuse("where decisions come from", a.decides, b.decides)
    for name in _SETTINGS:
        if getattr(a.settings, name) != getattr(b.settings, name):
            refuse(f"{name} of audit.toml", getattr(a.settings, name), getattr(b.settings, name))
    if (a.noise > 0) != (b.noise > 0):
        raise LogError("merge: some files have noise and some do not; add it to all or to none.")


def suppressed(seen: Summaries, least: int) -> Summaries:
    """Suppress cells with fewer than `least` rows.

    Small strata of decisions within a client and deployment are merged into one without a decision, so totals do not
    change. A client with fewer people than that under a deployment loses that deployment. What is lost is counted.
    """
    lost = [0, 0]

    def moments(own: Moments) -> Moments:
        own = _fold(own, least) if seen.strata > 1 else own
        use = own.count >= least
        lost[0] += int(np.sum(~use))
        lost[1] += int(own.count[~use].sum())
        kept = {
            name: getattr(own, name)[use] for name in ("client", "deployment", "stratum", "count", "mean", "squares")
        }
        return dataclasses.replace(own, **kept)

    def sums(own: Sums) -> Sums:
        use = own.rows >= least
        lost[0] += int(np.sum(~use))
        kept = ("client", "deployment", "stratum", "rows", "n", "mean", "squares")
        return dataclasses.replace(own, **{name: getattr(own, name)[use] for name in kept})

    def heavy(own: Weighted) -> Weighted:
        use = own.weight**2 >= least * np.maximum(own.square, 1e-300)
        lost[0] += int(np.sum(~use))
        names = [f.name for f in dataclasses.fields(own) if f.name != "clients"]
        return dataclasses.replace(own, **{name: getattr(own, name)[use] for name in names})

    labeled, unlabeled = moments(seen.labeled), moments(seen.unlabeled)
    people = list(lost)  # other cells count the same people again
    few = {key: n for key, n in seen.counts.items() if n < least}
    always = None if seen.always is None else (moments(seen.always[0]), moments(seen.always[1]))
    made = dataclasses.replace(
        seen, labeled=labeled, unlabeled=unlabeled, scores=(sums(seen.scores[0]), sums(seen.scores[1])),
        incomplete=sums(seen.incomplete), counts={key: n for key, n in seen.counts.items() if n >= least},
        always=always, weighted=None if seen.weighted is None else heavy(seen.weighted),
    )  # fmt: skip
    return dataclasses.replace(made, suppressed=(lost[0] + len(few), people[1]))


def _fold(own: Moments, least: int) -> Moments:
    """Merge small strata of a cell into one without decisions, adding the next larger until it is large enough."""
    cell = own.client * len(own.deployments) + own.deployment
    stratum = own.stratum.copy()
    for one in np.unique(cell):
        places = np.flatnonzero(cell == one)
        places = places[np.argsort(own.count[places])]
        total = 0.0
        for i in places:
            if own.count[i] >= least and (total == 0 or total >= least):
                break
            total += own.count[i]
            stratum[i] = _HIDDEN
    keys, n, m, s = combine(cell * 9 + stratum, own.count, own.mean, own.squares)
    at, many = keys // 9, len(own.deployments)
    return dataclasses.replace(
        own, client=at // many, deployment=at % many, stratum=keys % 9, count=n, mean=m, squares=s
    )

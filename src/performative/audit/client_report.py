"""What the logs of one client show."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from performative.audit.distance import Distances, shift_distances
from performative.audit.drift import DRIFTS
from performative.audit.effect import Effect, effect_test, no_test
from performative.audit.log import ClientLog, with_covariances
from performative.audit.response import Direction, Response, response
from performative.compare import holm
from performative.findings import plain

# Rows farther than this from the median of their column, in robust spreads (1.48 median distances), are outliers: the
# margin of `estimators.Filtered`.
MARGIN = 12.0
# With more clients than this, each gets fewer draws and fewer pairs of deployments.
MANY = 20
_FULL: tuple[int, dict[str, int]] = (2000, {})
_SPARED: tuple[int, dict[str, int]] = (500, {"pairs": 12, "projections": 12, "shuffles": 2})


@dataclass(frozen=True, eq=False)
class ClientReport:
    """One client's part of an `AuditReport`.

    Attributes:
        log: its log, without columns that do not vary (listed in `still`)
        p_value: of `effect`; adjusted: Holm's over all clients that can be tested, doubled for the pooled test
        reacts: whether adjusted is at most the level; None if these deployments cannot tell
        effect: the test under the requested drift, on the means and, if there is a label, on its covariances with
            the features; by_drift: under each kind of drift; tested: names of these columns
        outcomes: if the label is not in `log`: a log of labeled rows that represent everyone, or None
        response: slopes with intervals that are valid however models were trained; least_squares: the usual ones,
            narrower, only if there are several parameters (else None)
        distances: W_1 between deployments; None if no rows were kept
        far_out: column -> share of the kept rows that lie more than 12 robust spreads from its median
    """

    name: str
    weight: float
    log: ClientLog
    still: tuple[str, ...]
    p_value: float
    adjusted: float
    reacts: bool | None
    effect: Effect
    by_drift: dict[str, Effect]
    response: Response
    least_squares: Response | None
    distances: Distances | None
    far_out: dict[str, float]
    tested: tuple[str, ...]
    outcomes: ClientLog | None

    @property
    def rows(self) -> int:
        return int(self.log.count.sum())

    @property
    def detectable(self) -> np.ndarray:
        """[q, d] smallest response of each mean that would be detected with 90% power, in standard deviations."""
        return self.effect.detectable[: self.log.mean.shape[1]] / self.log.spread[:, None]

    @property
    def directions(self) -> list[tuple[Direction, str]]:
        """Directions whose interval excludes 0, with the method: those valid for any training come first.

        Only if the client reacts, and only columns that are significant after Holm's correction over all columns.
        """
        if not self.reacts:
            return []
        level = 1 - self.response.level
        named = {name for name, p in zip(self.tested, self.effect.by_column, strict=True) if p <= level}
        found = [(line, "exact") for line in self.response.directions if line.column in named]
        known = {(line.column, line.parameter) for line, _ in found}
        usual = self.least_squares.directions if self.least_squares is not None else ()
        usual = tuple(line for line in usual if line.column in named and (line.column, line.parameter) not in known)
        return found + [(line, "least squares") for line in usual]

    def to_dict(self) -> dict[str, Any]:
        """The whole report for JSON. Matrices have one row per data column and one entry per parameter."""
        effect, apart = self.effect, self.distances
        out = {
            "weight": self.weight,
            "rows": self.rows,
            "deployments": self.log.deployments,
            "columns": self.log.columns or (),
            "left_out_columns": self.still,
            "reacts": self.reacts,
            "p_value": self.p_value,
            "p_adjusted": self.adjusted,
            "p_by_drift": {drift: found.p_value for drift, found in self.by_drift.items()},
            "p_any_drift": effect.p_any_drift,
            "effect": {
                **{name: getattr(effect, name) for name in ("drift", "identified", "reasons", "statistic")},
                "column": effect.column or None,
                "parameter": effect.parameter or None,
                "columns": self.tested,
                "p_by_column": effect.by_column,
                "over_dispersion": effect.over_dispersion,
                "detectable": effect.detectable,
            },
            "response": self.response,
            "least_squares": self.least_squares,
            "distances": apart and {**vars(apart), "pairs": [pair._asdict() for pair in apart.pairs]},
            "far_out": self.far_out,
        }
        made: dict[str, Any] = plain(out)
        return made


@dataclass(frozen=True, eq=False)
class Pooled:
    """The test on the weighted mean over clients, `effect_test` of `pool`, under each kind of drift."""

    by_drift: dict[str, Effect]
    drift: str
    who: str
    tested: tuple[str, ...]

    @property
    def effect(self) -> Effect:
        """Under the requested drift."""
        return self.by_drift[self.drift]

    def to_dict(self) -> dict[str, Any]:
        return {
            "who": self.who,
            "p_value": self.effect.p_value,
            "p_by_drift": {drift: found.p_value for drift, found in self.by_drift.items()},
            "p_any_drift": self.effect.p_any_drift,
            "column": self.effect.column or None,
            "parameter": self.effect.parameter or None,
        }


def report_clients(
    logs: dict[str, ClientLog], weights: dict[str, float], labeled: bool, drift: str, level: float, seed: int,
    outcomes: dict[str, ClientLog] | None = None, blocked: str = "",
) -> tuple[tuple[ClientReport, ...], Pooled | None]:  # fmt: skip
    """Every client, in the given order, and the pooled test. labeled: whether the last column of each log is the label.

    Args:
        outcomes: logs that contain the label if `logs` do not; blocked: why no test is valid, "" if they are.

    Half of the level goes to the pooled test, half to the clients: the probability of any false alarm among them is at
    most `level`.
    """
    draws, sparing = _FULL if len(logs) <= MANY else _SPARED
    found: list[dict[str, Any]] = []
    asked_of: list[ClientLog] = []
    for i, (name, whole) in enumerate(logs.items()):
        log, still = varying(whole)
        if log is None:
            continue
        asked = log
        if labeled and log.mean.shape[1] > 1 and (log.columns or ())[-1] == (whole.columns or ())[-1]:
            asked = varying(with_covariances(log))[0] or log
        elif outcomes and name in outcomes:
            asked = with_outcomes(log, outcomes[name])
        asked_of.append(asked)
        by_drift = {kind: no_test(asked, kind, blocked) if blocked else effect_test(asked, kind) for kind in DRIFTS}
        several = log.theta.shape[1] > 1
        options: dict[str, Any] = {"drift": drift, "level": 1 - level, "draws": draws, "seed": seed + i}
        kept = log.sample is not None and not np.all(np.isnan(log.sample))
        found.append(
            {
                "name": name,
                "weight": weights[name],
                "log": log,
                "still": still,
                "effect": by_drift[drift],
                "by_drift": by_drift,
                "response": response(log, **options),
                "least_squares": response(log, method="least squares", **options) if several else None,
                "distances": shift_distances(log, seed=seed + i, **sparing) if kept else None,
                "far_out": rows_far_out(log) if kept else {},
                "tested": tuple(asked.columns or ()),
                "outcomes": outcomes.get(name) if outcomes else None,
            }
        )
    p = np.array([one["effect"].p_value for one in found])
    tested = np.array([one["effect"].identified for one in found], bool)
    together = pool(asked_of, [one["weight"] for one in found])
    pooled = None
    if together is not None:
        tests = {kind: effect_test(together, kind) for kind in DRIFTS}
        pooled = Pooled(tests, drift, together.name, tuple(together.columns or ()))
        pooled = pooled if pooled.effect.identified and not blocked else None
    adjusted = np.ones(len(found))
    adjusted[tested] = np.minimum(1.0, holm(p[tested]) * (1 if pooled is None else 2))
    reports = tuple(
        ClientReport(
            **one,
            p_value=float(p[i]),
            adjusted=float(adjusted[i]),
            reacts=bool(adjusted[i] <= level) if tested[i] else None,
        )
        for i, one in enumerate(found)
    )
    return reports, pooled


def pool(logs: Sequence[ClientLog], weights: Sequence[float]) -> ClientLog | None:
    """The weighted mean over clients as one log: what they do together.

        mean_t = sum_i w_i mean_it,      Var(mean_t) = sum_i w_i^2 cov_it / count_it

    Over the largest set of clients with the same deployments; None if that is one client. It detects a common response
    that is too small to see at any single client, and misses responses that cancel.
    """
    sets: dict[Any, list[int]] = {}
    for i, log in enumerate(logs):
        sets.setdefault((log.columns, tuple(log.time.tolist())), []).append(i)
    members = max(sets.values(), key=len, default=[])
    if len(members) < 2:
        return None
    w = np.array([weights[i] for i in members])
    w = w / w.sum()
    mine = [logs[i] for i in members]
    count = 1 / np.tensordot(w**2, np.stack([1 / log.count for log in mine]), 1)
    spread = np.tensordot(w**2, np.stack([log.cov / log.count[:, None, None] for log in mine]), 1)
    mean = np.tensordot(w, np.stack([log.mean for log in mine]), 1)
    name = "all clients" if len(mine) == len(logs) else f"{len(mine)} of {len(logs)} clients"
    return ClientLog(
        mine[0].theta, mine[0].time, np.maximum(count, 2.0), mean, spread * count[:, None, None], None,
        mine[0].columns, mine[0].parameters, name,
    )  # fmt: skip


def varying(log: ClientLog) -> tuple[ClientLog | None, tuple[str, ...]]:
    """The log without columns that are constant within deployments, and their names; None if no column is left."""
    moves = np.flatnonzero(log.spread > 0)
    names = log.columns or ()
    still = tuple(name for j, name in enumerate(names) if j not in moves)
    return (restrict(log, moves) if len(moves) else None), still


def restrict(log: ClientLog, columns: Any) -> ClientLog:
    """The log restricted to some columns, in the given order."""
    take = np.asarray(columns, int)
    return ClientLog(
        log.theta, log.time, log.count, log.mean[:, take], log.cov[:, take][:, :, take],
        None if log.sample is None else log.sample[:, :, take], tuple((log.columns or ())[j] for j in take),
        log.parameters, log.name,
    )  # fmt: skip


def rows_far_out(log: ClientLog) -> dict[str, float]:
    """Share of rows far from the median of their deployment, by column; columns with few values are skipped.

    A spread of 0 (half of the rows are equal) does not identify outliers. A long tail looks like contamination.
    """
    rows, t = log.rows_kept()
    shares = {}
    for j, name in enumerate(log.columns or ()):
        middle = np.array([np.median(rows[t == s, j]) if np.any(t == s) else 0.0 for s in range(log.deployments)])
        values = rows[:, j] - middle[t]
        spread = 1.4826 * float(np.median(np.abs(values)))
        if spread > 0:
            shares[name] = float(np.mean(np.abs(values) > MARGIN * spread))
    return shares


def with_outcomes(log: ClientLog, outcomes: ClientLog) -> ClientLog:
    """The features of all rows, plus the label and its covariances with them on labeled rows.

    Sampling variances stay correct: columns of the label are scaled as if they had as many rows as the features.
    Returns the log alone if the label does not vary, or was not observed under the same deployments.
    """
    other, _ = varying(outcomes)
    if other is None or (other.columns or ())[-1] != (outcomes.columns or ())[-1]:
        return log
    if not np.array_equal(other.time, log.time):
        return log
    label = (other.columns or ()).index((other.columns or ())[-1])
    if label:
        other = varying(with_covariances(other))[0] or other
    take = np.arange(label, other.mean.shape[1])
    q, more = log.mean.shape[1], len(take)
    cov = np.zeros((log.deployments, q + more, q + more))
    cov[:, :q, :q] = log.cov
    cov[:, range(q, q + more), range(q, q + more)] = (
        other.column_variances[:, take] * (log.count / other.count)[:, None]
    )
    names = (*(log.columns or ()), *((other.columns or ())[j] for j in take))
    return ClientLog(
        log.theta, log.time, log.count, np.hstack([log.mean, other.mean[:, take]]), cov, None, names, log.parameters,
        log.name,
    )  # fmt: skip

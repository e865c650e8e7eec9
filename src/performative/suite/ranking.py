"""From results to a leaderboard: mean scores with intervals, mean ranks with critical differences."""

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from performative.suite.front import on_front
from performative.suite.pairs import Interval, interval, paired, seed_scores
from performative.suite.protocol import BASELINES, Result


@dataclasses.dataclass(frozen=True)
class Standing:
    """A method's performance over all environments.

    Attributes:
        score: mean over environments of the mean score over seeds, each no less than -1; its interval is over
            environments
        behind: how much less of the gap it closes than the leader, paired by environment and seed; its interval is
            over seeds
        rank: mean rank, 1 for the best in an environment; wins: environments in which no method is better
        front: environments in which it is on the Pareto front of score against deployments
        harms: environments in which it ends below the model that is never retrained
        failures: runs that diverged; runs: total runs; absent: environments in which it does not apply
    """

    method: str
    score: Interval
    behind: Interval
    rank: float
    wins: int
    front: int
    harms: int
    failures: int
    runs: int
    absent: int


@dataclasses.dataclass(frozen=True)
class Board:
    """The leaderboard: standings, best mean rank first.

    `difference`: the critical difference in mean rank (Nemenyi at 5%); `chance`: the p-value of equal performance
    (Friedman); `unused`: environments in which no method applies; `partial`: methods measured in too few environments
    to be ranked.
    """

    standings: tuple[Standing, ...]
    envs: tuple[str, ...]
    difference: float
    chance: float
    unused: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = ("rank", "score", "behind the first", "best", "front", "harms", "diverged", "n/a")
        widths = (5, 6, 22, 4, 5, 5, 7, 3)
        lines = [" ".join([f"{'method':<10}", *(f"{name:>{width}}" for name, width in zip(head, widths, strict=True))])]
        for one in self.standings:
            first = (f"{one.rank:.1f}", f"{one.score.mean:.2f}", str(one.behind), one.wins, one.front, one.harms)
            cells = (*first, f"{one.failures}/{one.runs}", one.absent)
            padded = (f"{cell!s:>{width}}" for cell, width in zip(cells, widths, strict=True))
            lines.append(" ".join([f"{one.method:<10}", *padded]))
        told = (
            f"{len(self.envs)} environments; mean ranks closer than {self.difference:.1f} do not differ significantly"
        )
        lines.append(f"{told} (p = {self.chance:.2g} for equal performance of all methods).")
        if self.partial:
            lines.append(f"Measured in too few environments to be ranked: {', '.join(self.partial)}.")
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class Compared:
    """Which methods are compared in which environments; see `Board` for `unused` and `partial`."""

    methods: tuple[str, ...]
    envs: tuple[str, ...]
    cells: Mapping[tuple[str, str], Result]
    unused: tuple[str, ...]
    partial: tuple[str, ...]


def compared(results: Sequence[Result]) -> Compared:
    """Methods measured in at least half as many environments as any other, in the environments common to them all."""
    cells = {(result.env, result.method): result for result in results}
    counts = collections.Counter(method for _, method in cells if method not in BASELINES)
    most = max(counts.values(), default=0)
    methods = tuple(sorted(method for method, count in counts.items() if 2 * count >= most))
    whole = sorted({env for env, _ in cells if all((env, method) in cells for method in methods)})
    envs = tuple(env for env in whole if any(cells[env, method].why is None for method in methods))
    unused = tuple(env for env in whole if env not in envs)
    return Compared(methods, envs, cells, unused, tuple(sorted(set(counts) - set(methods))))


def rank(results: Sequence[Result]) -> Board:
    """Rank methods over the environments in which all were measured and at least one applies.

    Never retraining, the stable point and the oracle are baselines and have no rank.
    """
    table = compared(results)
    methods, envs, cells = table.methods, table.envs, table.cells
    if len(methods) < 2 or not envs:
        raise ValueError("rank: nothing to compare: pass at least two methods measured in the same environment.")
    scores = np.asarray([[mean_score(cells[env, method]) for method in methods] for env in envs])
    places = stats.rankdata(-np.round(scores, 9), axis=1)
    leader = methods[int(np.argmin(places.mean(axis=0)))]
    ahead = [cells[env, leader] for env in envs]
    fronts = {env: on_front([cells[env, method] for method in methods]) for env in envs}
    found = []
    for k, method in enumerate(methods):
        mine = [cells[env, method] for env in envs]
        found.append(Standing(
            method, interval(scores[:, k]), paired(ahead, mine), float(np.mean(places[:, k])),
            int(np.sum(scores[:, k] >= scores.max(axis=1) - 1e-9)), sum(method in fronts[env] for env in envs),
            int(np.sum(scores[:, k] < 0)), sum(one.failures for one in mine), sum(len(one.scores) for one in mine),
            sum(one.why is not None for one in mine),
        ))  # fmt: skip
    standings = tuple(sorted(found, key=lambda one: one.rank))
    critical = _critical(len(methods), len(envs))
    return Board(standings, envs, critical, _friedman(places), table.unused, table.partial)


def mean_score(result: Result) -> float:
    """The mean over seeds, each no less than the floor; 0 if the method does not apply: the model stays unchanged."""
    return float(np.mean(seed_scores(result, max(len(result.scores), 1))))


def _critical(methods: int, envs: int) -> float:
    """Nemenyi: q sqrt(k (k + 1) / (6 n)), q the studentized range at 5% over sqrt(2)."""
    q = stats.studentized_range.ppf(0.95, methods, math.inf) / math.sqrt(2)
    return float(q * math.sqrt(methods * (methods + 1) / (6 * envs)))


def _friedman(places: np.ndarray) -> float:
    n, k = places.shape
    spread = float(np.sum((places - (k + 1) / 2) ** 2)) / (n * (k - 1))
    if spread == 0.0:
        return 1.0
    statistic = n * float(np.sum((places.mean(axis=0) - (k + 1) / 2) ** 2)) / spread
    return float(stats.chi2.sf(statistic, k - 1))

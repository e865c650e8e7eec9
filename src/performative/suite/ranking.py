"""From results to a leaderboard: mean scores with intervals, mean ranks with critical differences."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from performative.suite.protocol import BASELINES, Result

# A run that diverged, or a method that does not apply, is no better than never retraining; and a score below that
# of leaving the world alone by more than this is all the same.
_FLOOR = -1.0


@dataclasses.dataclass(frozen=True)
class Standing:
    """A method over all environments.

    Attributes:
        score: mean over environments of the mean score over seeds, between -1 and 1; low, high: its interval at 95 %,
            over environments
        rank: mean rank, 1 for the best in an environment; wins: environments in which none is better
        failures: runs that diverged; runs: of how many; absent: environments in which it does not apply
    """

    method: str
    score: float
    low: float
    high: float
    rank: float
    wins: int
    failures: int
    runs: int
    absent: int


@dataclasses.dataclass(frozen=True)
class Board:
    """The leaderboard: standings, the best mean rank first.

    `difference`: mean ranks that differ by less are not told apart (Nemenyi at 5 %); `chance`: of ranks as uneven as
    these if all methods were alike (Friedman).
    """

    standings: tuple[Standing, ...]
    envs: tuple[str, ...]
    difference: float
    chance: float

    def __str__(self) -> str:
        lines = [f"{'method':<12} {'rank':>5} {'score':>6} {'95 %':>15} {'best in':>8} {'diverged':>10} {'n/a':>4}"]
        for one in self.standings:
            interval = f"{one.low:.2f} to {one.high:.2f}"
            lines.append(
                f"{one.method:<12} {one.rank:>5.1f} {one.score:>6.2f} {interval:>15} {one.wins:>8} "
                f"{one.failures:>4} of {one.runs:<3} {one.absent:>4}"
            )
        told = f"{len(self.envs)} environments; mean ranks closer than {self.difference:.1f} are not told apart"
        return "\n".join([*lines, f"{told} (p = {self.chance:.2g} that all methods are alike)."])


def rank(results: Sequence[Result]) -> Board:
    """The leaderboard of these results, over environments in which every method was measured.

    Never retraining and the oracle are 0 and 1 by definition, and have no rank.
    """
    methods = sorted({result.method for result in results} - set(BASELINES))
    cells = {(result.env, result.method): result for result in results}
    envs = sorted({env for env, _ in cells if all((env, method) in cells for method in methods)})
    if len(methods) < 2 or not envs:
        raise ValueError("rank: nothing to compare: give at least two methods that were measured in one environment.")
    scores = np.asarray([[_score(cells[env, method]) for method in methods] for env in envs])
    places = stats.rankdata(-np.round(scores, 9), axis=1)
    found = []
    for k, method in enumerate(methods):
        mine = [cells[env, method] for env in envs]
        mean, half = float(np.mean(scores[:, k])), _half_width(scores[:, k])
        found.append(Standing(
            method, mean, mean - half, mean + half, float(np.mean(places[:, k])),
            int(np.sum(scores[:, k] >= scores.max(axis=1) - 1e-9)), sum(one.failures for one in mine),
            sum(len(one.scores) for one in mine), sum(one.why is not None for one in mine),
        ))  # fmt: skip
    standings = tuple(sorted(found, key=lambda one: one.rank))
    return Board(standings, tuple(envs), _critical(len(methods), len(envs)), _friedman(places))


def _score(result: Result) -> float:
    """The mean over seeds, each no less than the floor; 0 where the method does not apply: the model stays."""
    if result.why is not None:
        return 0.0
    return float(np.mean(np.clip(result.scores, _FLOOR, None)))


def _half_width(values: np.ndarray) -> float:
    n = len(values)
    return float(stats.t.ppf(0.975, n - 1) * np.std(values, ddof=1) / math.sqrt(n)) if n > 1 else math.inf


def _critical(methods: int, envs: int) -> float:
    """Nemenyi: q sqrt(k (k + 1) / (6 n)), q the studentized range at 5 % over sqrt(2)."""
    q = stats.studentized_range.ppf(0.95, methods, math.inf) / math.sqrt(2)
    return float(q * math.sqrt(methods * (methods + 1) / (6 * envs)))


def _friedman(places: np.ndarray) -> float:
    n, k = places.shape
    spread = float(np.sum((places - (k + 1) / 2) ** 2)) / (n * (k - 1))
    if spread == 0.0:
        return 1.0
    statistic = n * float(np.sum((places.mean(axis=0) - (k + 1) / 2) ** 2)) / spread
    return float(stats.chi2.sf(statistic, k - 1))

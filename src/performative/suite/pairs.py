"""Paired differences between methods: runs with the same seed use common random numbers."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from performative.suite.protocol import FLOOR, Result


def two_digits(value: float) -> str:
    """Format with two digits, without a sign if the value rounds to zero."""
    return f"{round(value, 2) + 0.0:.2f}"


@dataclasses.dataclass(frozen=True)
class Interval:
    """A mean over seeds or environments, and its 95% Student-t confidence interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{two_digits(self.mean)} ({two_digits(self.low)} to {two_digits(self.high)})"

    @property
    def holds_zero(self) -> bool:
        return self.low <= 0.0 <= self.high


def interval(values: Sequence[float] | np.ndarray) -> Interval:
    """mean -+ t_{0.975, n-1} s / sqrt(n); infinite if there is only one value."""
    mean, n = float(np.mean(values)), len(values)
    if n < 2:
        return Interval(mean, -math.inf, math.inf)
    half = float(stats.t.ppf(0.975, n - 1) * np.std(values, ddof=1) / math.sqrt(n))
    return Interval(mean, mean - half, mean + half)


def seed_scores(result: Result, seeds: int) -> np.ndarray:
    """Scores by seed, each no less than the floor; 0 if the method does not apply: the model stays unchanged."""
    if result.why is not None:
        return np.zeros(seeds)
    return np.clip(np.asarray(result.scores[:seeds], np.float64), FLOOR, None)


def paired(one: Sequence[Result], other: Sequence[Result]) -> Interval:
    """How much more of the gap one method closes than another, over the same environments.

        d_s = mean over environments of (score_one - score_other) of seed s

    The interval is over seeds: it says whether the order would be the same with other random numbers in these
    environments, and nothing about other environments.
    """
    envs = [result.env for result in one]
    if envs != [result.env for result in other] or not envs:
        raise ValueError("paired: pass results of two methods in the same environments, in the same order.")
    counts = [len(result.scores) for result in (*one, *other) if result.why is None]
    seeds = min(counts, default=2)
    apart = [seed_scores(a, seeds) - seed_scores(b, seeds) for a, b in zip(one, other, strict=True)]
    return interval(np.mean(apart, axis=0))

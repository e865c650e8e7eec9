"""A lower bound on epsilon from attack scores on two data sets."""

import dataclasses

import numpy as np
from jaxtyping import Float
from scipy import stats

# Number of candidate thresholds, and the fraction of trials used to choose one.
_CANDIDATES = 2000
_CHOOSING = 0.25


@dataclasses.dataclass(frozen=True)
class Bound:
    """epsilon >= lower, with the rates it follows from."""

    lower: float
    hits: float
    false_alarms: float


def at_least(count: np.ndarray, trials: int, alpha: float) -> np.ndarray:
    """Clopper-Pearson lower bound: smaller rates yield `count` or more of `trials` with probability at most alpha."""
    count = np.asarray(count)
    return np.where(count > 0, stats.beta.ppf(alpha, np.maximum(count, 1), trials - count + 1), 0.0)


def at_most(count: np.ndarray, trials: int, alpha: float) -> np.ndarray:
    """Clopper-Pearson upper bound: larger rates yield `count` or fewer of `trials` with probability at most alpha."""
    count = np.asarray(count)
    return np.where(count < trials, stats.beta.ppf(1 - alpha, count + 1, np.maximum(trials - count, 1)), 1.0)


def epsilon_lower(
    present: Float[np.ndarray, " n"], absent: Float[np.ndarray, " k"], delta: float, confidence: float
) -> Bound:
    """log((P(A | D) - delta) / P(A | D')) for an event A = {score above, or below, a threshold}.

    Any (epsilon, delta) mechanism has P(A | D) <= e^epsilon P(A | D') + delta, for both orders of D and D'. The event
    is chosen on the first quarter of the trials and measured on the others, where each of the two rates gets half of
    1 - confidence. So the bound holds with that confidence for any scores; poor scores only make it loose.
    """
    alpha = (1 - confidence) / 2
    (present, tried_present), (absent, tried_absent) = split(present), split(absent)
    threshold, above = choose(present, absent, delta, alpha)
    lower, hits, false = _bounds(tried_present, tried_absent, np.asarray([threshold]), above, delta, alpha)
    return Bound(max(float(lower[0]), 0.0), float(hits[0]), float(false[0]))


def split(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split scores into those to choose an event on and those to measure it on."""
    first = max(1, int(_CHOOSING * len(scores)))
    return scores[:first], scores[first:]


def choose(
    present: np.ndarray, absent: np.ndarray, delta: float, alpha: float, both: bool = True
) -> tuple[float, bool]:
    """The threshold with the best bound, and whether the event lies above it; `both` also tries events below."""
    pooled = np.unique(np.concatenate([present, absent]))
    if len(pooled) > _CANDIDATES:
        pooled = pooled[np.linspace(0, len(pooled) - 1, _CANDIDATES).astype(int)]
    sides = (True, False) if both else (True,)
    best = [_bounds(present, absent, pooled, above, delta, alpha)[0] for above in sides]
    values = max(best, key=np.max)
    # If the scores do not overlap, many thresholds separate equally well: the middle one is the safest.
    ties = np.flatnonzero(values == values.max())
    return float(pooled[ties[len(ties) // 2]]), values is best[0]


def _bounds(
    present: np.ndarray, absent: np.ndarray, thresholds: np.ndarray, above: bool, delta: float, alpha: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The bound and the two rates at each threshold. Events below a threshold detect absence."""
    one, other = (present, absent) if above else (absent, present)
    hits, false = (np.searchsorted(np.sort(scores), thresholds, side="left") for scores in (one, other))
    if above:
        hits, false = len(one) - hits, len(other) - false
    sure, most = at_least(hits, len(one), alpha) - delta, at_most(false, len(other), alpha)
    lower = np.where(sure > 0, np.log(np.maximum(sure, 1e-300)) - np.log(most), -np.inf)
    return lower, hits / len(one), false / len(other)

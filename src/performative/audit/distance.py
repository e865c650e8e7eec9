"""How far apart the rows of two deployments are, and how far apart they would be by chance."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln
from scipy.stats import wasserstein_distance

from performative.audit.log import ClientLog


class Pair(NamedTuple):
    """Two deployments: |theta - theta'|, W_1 between their rows, and the mean W_1 under sampling alone."""

    first: int
    second: int
    models: float
    distance: float
    floor: float


@dataclass(frozen=True, eq=False)
class Distances:
    """Pairs of deployments, and the slope of W_1 in the distance between models.

    Attributes:
        sensitivity: sum |dtheta| sqrt((W_1^2 - floor^2)+) / sum |dtheta|^2
        sliced: whether W_1 is sliced (more than one column) rather than exact
    """

    pairs: tuple[Pair, ...]
    sensitivity: float
    sliced: bool


def shift_distances(
    log: ClientLog, pairs: int = 30, projections: int = 24, shuffles: int = 4, rows: int = 400, seed: int = 0
) -> Distances:
    """W_1 between the kept rows of pairs of deployments.

        W_1 exact for one column;   sliced above:  mean over directions w of W_1(w . z, w . z') / c_q

    c_q = E|w_1| is the sliced distance of two distributions one unit apart, so a pure shift has the same distance
    either way; for other changes the sliced distance is a proxy, neither an upper nor a lower bound of W_1. Pairs are
    spread evenly over all distances between models. The floor is what sampling alone produces: centered rows,
    permuted. Drift is not removed: the slope measures the response only if drift between deployments is small;
    `response` removes it. rows: the maximum number used per deployment.
    """
    if log.sample is None:
        raise ValueError("shift_distances needs rows; this log keeps none (sample is None).")
    rng = np.random.default_rng(seed)
    q = log.mean.shape[1]
    tables = [table[~np.any(np.isnan(table), axis=1)][:rows] for table in log.sample]
    directions = np.ones((1, 1)) if q == 1 else _unit(rng.standard_normal((projections, q)))
    unit = np.exp(gammaln(q / 2) - gammaln((q + 1) / 2)) / np.sqrt(np.pi)
    found = []
    for first, second in _spread_pairs(log.theta, [len(table) for table in tables], pairs):
        models = float(np.linalg.norm(log.theta[first] - log.theta[second]))
        a, b = tables[first] @ directions.T, tables[second] @ directions.T
        # Centered rows: the shift between them is not chance.
        both = np.concatenate([a - a.mean(axis=0), b - b.mean(axis=0)])
        shuffled = [rng.permutation(both) for _ in range(shuffles)]
        floor = float(np.mean([_mean_distance(s[: len(a)], s[len(a) :]) for s in shuffled]))
        found.append(Pair(first, second, models, float(_mean_distance(a, b) / unit), float(floor / unit)))
    size = sum(pair.models**2 for pair in found)
    moved = sum(pair.models * np.sqrt(max(pair.distance**2 - pair.floor**2, 0.0)) for pair in found)
    return Distances(tuple(found), float(moved / size) if size > 0 else 0.0, q > 1)


def _mean_distance(a: np.ndarray, b: np.ndarray) -> float:
    if len(a) == len(b):
        # For two samples of equal size, the optimal pairing is by rank.
        return float(np.mean(np.abs(np.sort(a, axis=0) - np.sort(b, axis=0))))
    return float(np.mean([wasserstein_distance(a[:, k], b[:, k]) for k in range(a.shape[1])]))


def _unit(directions: np.ndarray) -> np.ndarray:
    return directions / np.linalg.norm(directions, axis=1, keepdims=True)


def _spread_pairs(theta: np.ndarray, rows: list[int], pairs: int) -> list[tuple[int, int]]:
    """Pairs of deployments with rows, evenly over the ranks of |theta - theta'|, the farthest included."""
    every = [(i, j) for i in range(len(theta)) for j in range(i) if rows[i] and rows[j]]
    every.sort(key=lambda pair: float(np.linalg.norm(theta[pair[0]] - theta[pair[1]])))
    if len(every) <= pairs:
        return every
    return [every[k] for k in np.unique(np.linspace(0, len(every) - 1, pairs).round().astype(int))]

"""Clients with quadratic losses and static or reacting data: everything about them is known exactly.

    y = (level_i + reaction_i theta) x_i,   loss (theta x - y)^2 / 2,   x_i^2 = curvature_i

so client i has gradient curvature_i ((1 - reaction_i) theta - level_i), without noise. reaction = 0: the slides' data.
"""

import dataclasses
from typing import Any

import numpy as np

import performative as pf


@dataclasses.dataclass(frozen=True, eq=False)
class Parabolas:
    """curvature, level, reaction and weights, one per client."""

    curvature: np.ndarray
    level: np.ndarray
    reaction: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, curvature: Any, level: Any, reaction: Any, weights: Any = None) -> "Parabolas":
        """From lists; equal weights by default."""
        equal = np.full(len(level), 1.0 / len(level))
        given = (curvature, level, reaction, equal if weights is None else weights)
        return cls(*(np.asarray(one, np.float64) for one in given))

    @property
    def slope(self) -> np.ndarray:
        """grad F_i = slope_i theta - mean_i, on data that have settled under theta."""
        return self.curvature * (1.0 - self.reaction)

    @property
    def mean(self) -> np.ndarray:
        return self.curvature * self.level

    @property
    def minima(self) -> np.ndarray:
        """Where each client alone would settle."""
        return self.level / (1.0 - self.reaction)

    @property
    def stable(self) -> float:
        """Where the gradients balance: the optimum if data are static, the stable point if they react."""
        return self.balance(self.weights)

    def balance(self, weights: np.ndarray) -> float:
        """`stable` for other weights."""
        return float(weights @ self.mean / (weights @ self.slope))

    def gradient(self, theta: Any) -> Any:
        """grad F, at one model or at many."""
        return float(self.weights @ self.slope) * np.asarray(theta, np.float64) - float(self.weights @ self.mean)

    @property
    def dissimilarity(self) -> float:
        """sigma_g^2 at the stable point: sum_i p_i |grad F_i|^2."""
        return float(self.weights @ (self.slope * self.stable - self.mean) ** 2)

    def problem(self, noise: float = 0.0) -> pf.Problem:
        """`noise` is the standard deviation of y: of one sample's loss, and of its gradient over x."""
        x = np.sqrt(self.curvature)
        population = pf.populations.Regression(x, 0.0, self.level, -self.reaction, noise)
        return pf.Problem(pf.losses.ridge(0.0), population, self.weights)


def parabolas(clients: int, curvature: list[float], spread: float, reaction: list[float], seed: int) -> Parabolas:
    """Clients with uniform curvatures and reactions, and normal levels with this spread."""
    rng = np.random.default_rng(seed)
    (least, most), (low, high) = curvature, reaction
    h = rng.uniform(least, most, clients)
    return Parabolas.of(h, spread * rng.standard_normal(clients), rng.uniform(low, high, clients))


def rounds_to(values: Any, level: float) -> float:
    """The first record after which all values stay below the level; infinite if there is none."""
    above = np.flatnonzero(np.asarray(values) > level)
    first = 0 if not len(above) else int(above[-1]) + 1
    return float(first) if first < len(values) else float("inf")


def continued(x: Any, y: Any) -> tuple[float, float]:
    """Extrapolate to x = 0 by the polynomial through all points; also how much the farthest point contributes."""
    order = np.argsort(-np.asarray(x, np.float64))
    x, y = np.asarray(x, np.float64)[order], np.asarray(y, np.float64)[order]
    rows = [y]
    for j in range(1, len(x)):
        rows.append((x[:-j] * rows[-1][1:] - x[j:] * rows[-1][:-1]) / (x[:-j] - x[j:]))
    return float(rows[-1][0]), float(abs(rows[-1][0] - rows[-2][-1]))


def order(x: Any, y: Any) -> tuple[float, float]:
    """The exponent of y in x as x goes to 0, and what the extrapolation adds to the last slope.

    Slopes between neighbors on logarithmic axes, the last two extrapolated linearly to 0: with logarithms in y, higher
    orders would suggest more precision than there is.
    """
    at = np.argsort(-np.asarray(x, np.float64))[-3:]
    x, y = np.asarray(x, np.float64)[at], np.asarray(y, np.float64)[at]
    return continued(np.sqrt(x[1:] * x[:-1]), np.diff(np.log(y)) / np.diff(np.log(x)))

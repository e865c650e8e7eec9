"""Local polynomials at a threshold, as linear weights of the outcomes.

    beta_hat = argmin_beta sum_i k(x_i / h) (y_i - beta_0 - beta_1 x_i - ... - beta_p x_i^p)^2,   x_i >= 0 (or < 0)

Every estimate here is sum_i l_i y_i with weights l that depend on x only, so biases and variances follow from l:
Calonico, Cattaneo and Titiunik 2014 (Econometrica 82), Sections 2 and 3 and their supplement.
"""

from typing import NamedTuple

import numpy as np

NEIGHBORS = 3
# Triangular kernel: the pilot bandwidth is 2.576 min(sd, IQR / 1.349) n^(-1/5).
_PILOT = 2.576


class Side(NamedTuple):
    """The rows of one side: x is the distance from the threshold, sorted; s2 [n] the variance of each outcome."""

    x: np.ndarray
    y: np.ndarray
    s2: np.ndarray


class Bandwidths(NamedTuple):
    """h for the estimate, b for its bias."""

    h: float
    b: float


def one_side(x: np.ndarray, y: np.ndarray) -> Side:
    """Rows sorted by x, with variances from the nearest neighbors."""
    order = np.argsort(x, kind="stable")
    return Side(x[order], y[order], neighbor_variances(x[order], y[order]))


def neighbor_variances(x: np.ndarray, y: np.ndarray, neighbors: int = NEIGHBORS) -> np.ndarray:
    """[n] J / (J + 1) (y_i - mean of its J nearest neighbors)^2, unbiased if the mean is locally flat; x is sorted."""
    n, J = len(x), neighbors
    shifts = [k for k in range(-J, J + 1) if k]
    at = np.arange(n)[:, None] + np.array(shifts)
    inside = (at >= 0) & (at < n)
    at = np.clip(at, 0, n - 1)
    far = np.where(inside, np.abs(x[at] - x[:, None]), np.inf)
    nearest = np.argsort(far, axis=1, kind="stable")[:, :J]
    means = np.take_along_axis(y[at], nearest, axis=1).mean(axis=1)
    return J / (J + 1) * (y - means) ** 2


def weights(x: np.ndarray, h: float, order: int, entry: int) -> np.ndarray:
    """[n] l such that sum_i l_i y_i is the coefficient of x^entry, with the triangular kernel."""
    k = np.maximum(1 - np.abs(x) / h, 0.0)
    root = np.sqrt(k)
    # In units of h the columns have comparable size.
    X = (x[:, None] / h) ** np.arange(order + 1) * root[:, None]
    q, r = np.linalg.qr(X)
    unit = np.zeros(order + 1)
    unit[entry] = 1.0
    return (q @ np.linalg.solve(r.T, unit)) * root / h**entry


def bandwidths(left: Side, right: Side) -> Bandwidths:
    """MSE-optimal bandwidths for the jump: h for a local line, b for the curvature that corrects its bias.

        h_(nu, p) = [ (1 + 2 nu) V / (2 (p + 1 - nu) (B^2 + 3 Var B)) ]^(1 / (2p + 3))

    V h^-(1 + 2 nu) is the variance and B h^(p + 1 - nu) the bias of the jump in the coefficient nu of a polynomial of
    order p. V is measured at the pilot bandwidth, B from coefficient p + 1 of a polynomial at the previous bandwidth:
    a quartic over all rows -> d (cubic term) -> b (quadratic term) -> h (level). 3 Var B keeps an accidentally small
    bias from blowing up the bandwidth (Imbens and Kalyanaraman 2012).
    """
    x = np.concatenate([left.x, right.x])
    spread = min(float(x.std(ddof=1)), float(np.subtract(*np.percentile(x, [75, 25]))) / 1.349)
    reach = max(-left.x[0], right.x[-1])
    pilot = min(_PILOT * spread * len(x) ** -0.2, reach)
    # Heavy ties or a gap at the threshold: keep as many rows as the highest order needs.
    pilot = max(pilot, *(float(np.sort(np.abs(side.x))[min(len(side.x), 30) - 1]) for side in (left, right)))
    quartic = [float(weights(s.x, 1.000001 * np.abs(s.x).max(), 4, 4) @ s.y) for s in (left, right)]
    d = _optimal(left, right, pilot, 3, 3, quartic, 0.0, reach)
    cubic, noise = _coefficients(left, right, d, 3, 3)
    b = _optimal(left, right, pilot, 2, 2, cubic, noise, reach)
    square, noise = _coefficients(left, right, b, 2, 2)
    return Bandwidths(_optimal(left, right, pilot, 1, 0, square, noise, reach), b)


def _coefficients(left: Side, right: Side, h: float, order: int, entry: int) -> tuple[list[float], list[float]]:
    """The coefficient on each side, and its variance."""
    l = [weights(side.x, h, order, entry) for side in (left, right)]
    values = [float(w @ side.y) for w, side in zip(l, (left, right), strict=True)]
    return values, [float(w**2 @ side.s2) for w, side in zip(l, (left, right), strict=True)]


def _optimal(
    left: Side, right: Side, pilot: float, order: int, entry: int, coefficients: list[float],
    noise: list[float] | float, reach: float,
) -> float:  # fmt: skip
    """The bandwidth of `bandwidths`, capped at the range of the data."""
    V = B = extra = 0.0
    noises = [noise, noise] if isinstance(noise, float) else noise
    for sign, side, value, variance in zip((-1, 1), (left, right), coefficients, noises, strict=True):
        l = weights(side.x, pilot, order, entry)
        V += float(l**2 @ side.s2) * pilot ** (1 + 2 * entry)
        factor = float(l @ side.x ** (order + 1)) / pilot ** (order + 1 - entry)
        B += sign * factor * value
        extra += factor**2 * variance
    squared = B**2 + 3 * extra
    if squared <= 0:
        return reach
    power = 2 * order + 3
    return float(min(((1 + 2 * entry) * V / (2 * (order + 1 - entry) * squared)) ** (1 / power), reach))

"""Do scores pile up at the threshold? A test of the density's continuity there."""

from typing import NamedTuple

import numpy as np
from scipy import stats

from performative.audit.causes.local_polynomial import weights


class DensityTest(NamedTuple):
    """Densities just below and above the threshold, and a test for a jump between them."""

    below: float
    above: float
    statistic: float
    p_value: float
    bandwidth: float
    nearest: int
    nearest_above: int


def density_test(x: np.ndarray) -> DensityTest:
    """Is the density of x the same on both sides of 0? In the style of Cattaneo, Jansson and Ma 2020.

        f(+-0) = slope at 0 of a local polynomial through the empirical distribution function, on each side alone
        T = (f(+0) - f(-0)) / se ~ N(0, 1)

    A cubic at the bandwidth that is MSE-optimal for the quadratic, so its bias is of smaller order (robust bias
    correction). The variance is that of the linear part of f: f ~ (1/n) sum_j g(x_j), with
    g(z) = sum_i l_i (1(z <= x_i) - F(x_i)) and l the weights of the slope.

    A polynomial extrapolates across a gap: if everyone just below moved above, it detects little. So the nearest rows
    are counted too: half of m should lie above (binomial). The p-value is Bonferroni's over both tests.
    """
    n = len(x)
    sides = [np.sort(-x[x < 0]), np.sort(x[x >= 0])]
    h = _bandwidth(sides, n)
    found = [_edge(side, h, n) for side in sides]
    below, above = found[0][0], found[1][0]
    # The two sides share n: Cov(f-, f+) comes from which side a row falls on, and is of order 1/n, smaller by h.
    error = np.sqrt(found[0][1] + found[1][1])
    statistic = float((above - below) / error)
    smooth = float(2 * stats.norm.sf(abs(statistic)))
    # Few enough that the density hardly changes over them.
    m = int(np.clip(n // 20, 20, 50))
    up = int(np.sum(x[np.argsort(np.abs(x), kind="stable")[:m]] >= 0))
    p = min(1.0, 2 * min(smooth, float(stats.binomtest(up, m).pvalue)))
    return DensityTest(below, above, statistic, p, h, m, up)


def _edge(distance: np.ndarray, h: float, n: int, order: int = 3) -> tuple[float, float]:
    """Density at distance 0, in units of all n rows, and its variance. Distances are sorted and nonnegative."""
    near = distance[distance < h]
    m = len(near)
    F = (np.arange(m) + 1) / n
    l = weights(near, h, order, 1)
    # sum_i l_i 1(z <= x_i) for z = x_j: sums from j on. Slope weights sum to zero, so rows beyond h contribute nothing.
    g = np.cumsum(l[::-1])[::-1]
    mean = float(g.sum()) / n
    variance = float((g**2).sum() / n - mean**2) / n
    return float(l @ F), variance


def _bandwidth(sides: list[np.ndarray], n: int) -> float:
    """MSE-optimal for the jump of the slope of a local quadratic, from the normal density of the same mean and spread.

        bias h^2 B, variance V / (n h):      h = (V / (4 n B^2))^(1/5)

    Constants of the triangular kernel at a boundary: B = c (F'''(+0) - F'''(-0)) / 6 = 0 for a smooth F, so the sum of
    absolute values is used instead, because each side's own bias is what hurts.
    """
    x = np.concatenate([-sides[0], sides[1]])
    mean, sd = float(x.mean()), float(x.std(ddof=1))
    sd = min(sd, float(np.subtract(*np.percentile(x, [75, 25]))) / 1.349)
    z = -mean / sd
    f = float(stats.norm.pdf(z)) / sd
    # F''' at 0: its root mean square within one standard deviation, since it may vanish at the threshold itself.
    around = z + np.linspace(-1, 1, 21)
    third = float(np.sqrt(np.mean((stats.norm.pdf(around) * (around**2 - 1)) ** 2))) / sd**3
    bias, variance = _constants()
    h = (variance * 2 * f / (4 * n * (2 * bias * third / 6) ** 2)) ** 0.2
    reach = max(float(side[-1]) for side in sides)
    # Enough rows on each side to fit a cubic.
    least = max(float(side[min(len(side), 40) - 1]) for side in sides)
    return float(min(max(h, least), reach))


def _constants(grid: int = 2000) -> tuple[float, float]:
    """For the slope of a local quadratic at a boundary with h = 1: the bias of x^3, and n h Var / f."""
    x = (np.arange(grid) + 0.5) / grid
    l = weights(x, 1.0, 2, 1)
    g = np.cumsum(l[::-1])[::-1]
    return abs(float(l @ x**3)), float((g**2).mean())

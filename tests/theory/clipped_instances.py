"""The instances of the tests of clipped learning, and a plain simulation of it."""

import math

import numpy as np

from performative.theory import (
    ClippedAssumptions,
    ClippedQuadratic,
)

PAPER = [ClippedQuadratic(0.1, 10.0, 1.0, beta) for beta in (0.01, 0.05)]  # Figure 1, first
# mu~ = 1, C_1 = 4, c_1 = 1 + 2 * 0.5^2 = 1.5 (printed: 2 (1 + 9) + 0.5 = 20.5)
GIVEN = ClippedAssumptions(mu=2.0, L=4.0, beta=0.25, G=3.0, distance=16.0, dimension=2)
TINY = 1e-12  # rounding: at t = 0 the bounds are equalities


def simulate(q, start, eta, clip, memory_clip=None, sigma=0.0, radius=math.inf, repeats=1000, seed=0, keep=0):
    """Plain NumPy. Squared errors of theta and of theta - gamma e and squared memories, [T + 1] each with standard
    errors; the mean model of each repeat over the last `keep` steps, and the last memories."""
    rng = np.random.default_rng(seed)
    theta, e, sums = np.full(repeats, start), np.zeros(repeats), np.zeros(repeats)
    rows = [np.tile([[(start - q.stable) ** 2], [(start - q.stable) ** 2], [0.0]], repeats)]
    for t, gamma in enumerate(eta):
        gradient = q.mu_tilde * theta + q.a * q.b * (rng.random(repeats) < q.p)
        v = np.clip(gradient, -clip, clip)
        if memory_clip is not None:
            v = v + np.clip(e, -memory_clip, memory_clip)
            e = e + gradient - v
        theta = np.clip(theta - gamma * (v + sigma * rng.standard_normal(repeats)), -radius, radius)
        rows.append(np.stack([(theta - q.stable) ** 2, (theta - gamma * e - q.stable) ** 2, e**2]))
        if t >= len(eta) - keep:
            sums += theta / keep
    rows = np.stack(rows, 1)
    return rows.mean(2), rows.std(2) / math.sqrt(repeats), sums, e


def within(values, expected, errors=4.0):
    """Whether the mean of independent values is the expected one, in standard errors."""
    return abs(values.mean() - expected) <= errors * values.std() / math.sqrt(len(values))

"""Wasserstein distance between paired samples, with limits. NumPy only, many pairs of samples at once."""

import numpy as np

# Each limit holds with this probability, so both hold with 95%.
SIDE = 0.975
# Batches whose distances are averaged: enough for a standard error, and few enough for each to be large.
_BATCHES = 8


def paired_distance(a: np.ndarray, b: np.ndarray, looks: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """W_1 between the distributions of two samples with common random numbers: estimate, lower, upper limit, each [B].

    Args:
        a, b: [B, n, k]: B pairs of samples, n draws of k numbers; draw j of both has the same randomness
        looks: the lower limit holds simultaneously for this many calls, since the largest of them is used

    upper: k = 1: mean W_1 of batches, by sorting; its mean is above W_1, as W_1 is convex in both arguments. k > 1: the
           mean cost of the coupling a_j -> b_j, which is no less than W_1.
    lower: a 1-Lipschitz phi is learned from half of the draws and used on the rest: E phi(b) - E phi(a) <= W_1 for any
           such phi (Kantorovich). It acts along the difference of the means.
    value: by sorting all draws, with k > 1 the cost of the coupling.

    The limits are those of a normal mean: they need some hundred draws, and finite variances.
    """
    from scipy import stats

    n, half = a.shape[1], a.shape[1] // 2
    way = np.mean(b[:, :half] - a[:, :half], axis=1)
    length = np.linalg.norm(way, axis=1, keepdims=True)
    along = np.where(length > 0, way / np.where(length > 0, length, 1.0), np.eye(1, a.shape[2]))
    s, t = np.einsum("bnk,bk->bn", a, along), np.einsum("bnk,bk->bn", b, along)
    gain = _gain(s, t, half)
    lower = np.mean(gain, axis=1) - stats.norm.ppf(1 - (1 - SIDE) / looks) * _standard_error(gain)
    if a.shape[2] == 1:
        value = np.mean(np.abs(np.sort(a[..., 0], axis=1) - np.sort(b[..., 0], axis=1)), axis=1)
        size = n // _BATCHES
        parts = [np.sort(v[:, : size * _BATCHES, 0].reshape(len(v), _BATCHES, size), axis=2) for v in (a, b)]
        costs = np.mean(np.abs(parts[0] - parts[1]), axis=2)
        upper = np.mean(costs, axis=1) + stats.t.ppf(SIDE, _BATCHES - 1) * _standard_error(costs)
    else:
        costs = np.linalg.norm(b - a, axis=2)
        value = np.mean(costs, axis=1)
        upper = value + stats.norm.ppf(SIDE) * _standard_error(costs)
    return value, np.clip(lower, 0.0, value), np.maximum(upper, value)


def _gain(s: np.ndarray, t: np.ndarray, half: int) -> np.ndarray:
    """phi(t_j) - phi(s_j) of the second half of the draws, phi learned from the first.

    phi' = sign(F_s - F_t); where the first half gives no sign, the prevailing one.
    """
    n = s.shape[1]
    every = np.concatenate([s, t], axis=1)
    order = np.argsort(every, axis=1)  # ties coincide, so their order does not matter
    places = np.take_along_axis(every, order, axis=1)
    draw, of_s = order % n, order < n
    # n (F_s - F_t) of the first half, between each two neighbors among all draws.
    lead = np.cumsum(np.where(draw < half, np.where(of_s, 1, -1), 0), axis=1)[:, :-1]
    gaps = np.diff(places, axis=1)
    prevails = np.where(np.sum(lead * gaps, axis=1, keepdims=True) < 0, -1.0, 1.0)
    slope = np.where(lead == 0, prevails, np.sign(lead))
    heights = np.zeros_like(places)
    np.cumsum(slope * gaps, axis=1, out=heights[:, 1:])
    phi = np.empty_like(heights)
    np.put_along_axis(phi, order, heights, axis=1)
    return phi[:, n + half :] - phi[:, half:n]


def _standard_error(values: np.ndarray) -> np.ndarray:
    return np.std(values, axis=1, ddof=1) / np.sqrt(values.shape[1])

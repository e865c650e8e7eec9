"""Thousands of small worlds whose truth is known, as logs would show them: all in one NumPy run from a seed."""

from typing import NamedTuple

import numpy as np

from performative.audit.log import ClientLog

MAPS = ("gaussian", "strategic", "mixture", "none")
DRIFTS = ("none", "linear", "walk", "wave", "season", "jump", "settling")
TRAINING = ("retrained", "cumulative", "damped", "by hand", "explored")


class Worlds(NamedTuple):
    """W worlds of T deployments: theta [W, T, d], mean [W, T, q], cov [W, T, q, q], count [T], truth B [W, q, d].

    `level` [W, q] is a of mean = a + B theta, before drift.
    """

    theta: np.ndarray
    mean: np.ndarray
    cov: np.ndarray
    count: np.ndarray
    time: np.ndarray
    B: np.ndarray
    level: np.ndarray

    @property
    def series(self):
        """y [W, q, T] and its sampling variance."""
        variance = np.diagonal(self.cov, axis1=-2, axis2=-1) / self.count[:, None]
        return np.swapaxes(self.mean, 1, 2), np.swapaxes(variance, 1, 2)

    def log(self, w, sample=None):
        return ClientLog(self.theta[w], self.time, self.count, self.mean[w], self.cov[w], sample)


def make(
    seed, worlds=2000, T=16, rows=400, d=1, response="gaussian", size=0.5, drift="none", drift_size=0.1,
    training="retrained", gap=1.0, explore=0.2, over_dispersion=0.0,
):  # fmt: skip
    """Logs of `worlds` worlds. Columns have within-variance near 1; sizes of drift are in their standard deviations.

    response: "gaussian" rows N(a + B theta, C) with one column a parameter; "strategic" x' = x - B theta with
    correlated features and a last column, the label, that stays; "mixture" of two groups whose
    share is linear in theta; "none".
    training: theta_{t+1} = mean of the last deployment's rows / of all rows so far / half a step towards it /
    independent of all data, spread gap / the last mean plus N(0, explore^2).
    """
    rng = np.random.default_rng(seed)
    W, q = worlds, d + 1 if response == "strategic" else d
    level = rng.normal(0.0, 1.0, (W, q))
    B = np.zeros((W, q, d))
    if response != "none":
        # A random direction for each world, of the stated size: nothing here is aligned with an axis.
        turn = np.linalg.qr(rng.normal(size=(W, d, d)))[0]
        B[:, :d] = size * turn
        if response == "strategic":
            B[:, :d] *= -1
    start = level
    if response == "mixture":
        level = start - np.einsum("wqd,wd->wq", B, start)
    root = np.linalg.cholesky(0.7 * np.eye(q) + 0.3)
    C = np.broadcast_to(root @ root.T, (W, q, q))
    time = np.arange(T) * 1.0
    moved = _drift(rng, drift, drift_size, W, q, T)
    shock = over_dispersion * rng.normal(size=(W, T, q))
    theta, mean, cov = np.zeros((W, T, d)), np.zeros((W, T, q)), np.zeros((W, T, q, q))
    for t in range(T):
        theta[:, t] = _next(rng, training, theta, mean, t, d, start, gap, explore)
        center = level + np.einsum("wqd,wd->wq", B, theta[:, t]) + moved[:, t] + shock[:, t]
        spread = C
        if response == "mixture":
            # Two groups 2.5 apart in every column; a share s of the second: mean a + 2.5 s. The share carries theta.
            share = np.clip(0.5 + np.einsum("wqd,wd->wq", B, theta[:, t] - start) / 2.5, 0.02, 0.98)
            center = start + 2.5 * (share - 0.5) + moved[:, t] + shock[:, t]
            spread = C + np.einsum("wq,qr->wqr", 2.5**2 * share * (1 - share), np.eye(q))
        factor = np.linalg.cholesky(spread)
        mean[:, t] = center + np.einsum("wqr,wr->wq", factor, rng.normal(size=(W, q))) / np.sqrt(rows)
        cov[:, t] = _sample_covariance(rng, factor, rows)
    return Worlds(theta, mean, cov, np.full(T, 1.0 * rows), time, B, level)


def _next(rng, training, theta, mean, t, d, level, gap, explore):
    if training == "by hand":
        return level[:, :d] + gap * rng.normal(size=theta[:, 0].shape)
    if t == 0:
        return level[:, :d] + gap * rng.choice([-1.0, 1.0], theta[:, 0].shape)
    last = mean[:, t - 1, :d]
    if training == "cumulative":
        return mean[:, :t, :d].mean(axis=1)
    if training == "damped":
        return 0.5 * theta[:, t - 1] + 0.5 * last
    return last + explore * rng.normal(size=last.shape) if training == "explored" else last


def _drift(rng, kind, size, W, q, T):
    """[W, T, q] in standard deviations of a column: `size` a step (linear, walk), the top (wave, season), the start.

    A wave is as long as the log, a season has 6 deployments; "settling" fades by itself, to a third in 4 deployments.
    """
    t = np.arange(T)[None, :, None]
    sign = rng.choice([-1.0, 1.0], (W, 1, q))
    if kind == "linear":
        return size * sign * t
    if kind == "walk":
        return np.cumsum(size * rng.normal(size=(W, T, q)), axis=1)
    if kind in ("wave", "season"):
        return size * np.sin(2 * np.pi * t / (T if kind == "wave" else 6) + rng.uniform(0, 2 * np.pi, (W, 1, q)))
    if kind == "settling":
        return size * sign * np.exp(-t / 4)
    if kind == "jump":
        return size * sign * (t >= rng.integers(2, T - 2, (W, 1, 1)))
    return np.zeros((W, T, q))


def _sample_covariance(rng, factor, rows):
    """Covariance of `rows` normal rows, by Bartlett's decomposition of the Wishart law."""
    W, q, _ = factor.shape
    A = np.tril(rng.normal(size=(W, q, q)), -1)
    A[:, range(q), range(q)] = np.sqrt(rng.chisquare(rows - 1 - np.arange(q), (W, q)))
    M = factor @ A
    return M @ np.swapaxes(M, 1, 2) / (rows - 1)

"""Drift that does not depend on the model: what it may look like, and a transform that removes it."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

DRIFTS = ("none", "linear", "walk", "smooth")
# 2 x log-likelihood ratio below which a drift stays plausible: the 99% quantile of chi2 with one degree of freedom.
_PLAUSIBLE = 6.63
# Variances of a wave in units of the noise: amplitudes from three to a few hundred standard errors of a mean. A guess
# that is off by a factor of ten costs 2 log 10 in 2 log L, so one of the two is always kept.
_WAVES = (100.0, 3e4)


class Deviations(NamedTuple):
    """Forward deviations of the means and of the model under one guess of the drift.

    Args:
        u: [..., q, n] of the means; under no effect independent N(0, phi), phi >= 1 the over-dispersion
        D: [..., q, n, d] of the model
        logdet: [..., q] log determinant of the covariance, for comparing guesses
    """

    u: np.ndarray
    D: np.ndarray
    logdet: np.ndarray


def lost(drift: str) -> int:
    """k, the degrees of freedom that the unknown level (and trend) cost."""
    if drift not in DRIFTS:
        raise ValueError(f"drift must be one of {DRIFTS}; got {drift!r}.")
    return 1 if drift == "none" else 2


def guesses(drift: str, t: np.ndarray) -> list[np.ndarray]:
    """[T, T] covariances of m at times t (mean spacing 1), in units of the sampling variance: no drift first.

        walk     lambda min(s, t)                               its slope walks     lambda s^2 (3t - s) / 6,  s <= t
        wave     lambda exp(-(s - t)^2 / (2 l^2)) cos(w (s - t)),      l = min(T / 2, 20),   w = 0, 1.5/l, .. < 0.9 pi

    "smooth" uses sums of the first two, and waves: of any period above 2.2 deployments, with an amplitude that may
    change within l deployments, so frequencies between those listed are covered too. w = 0 and l = T bends slowly.
    """
    T = len(t)
    low, high = np.minimum.outer(t, t), np.maximum.outer(t, t)
    curve, gap = low**2 * (3 * high - low) / 6, high - low
    if drift == "walk":
        return [v * low for v in (0.0, *np.geomspace(0.1 / T, 100, 8))]
    if drift != "smooth":
        return [0.0 * low]
    level, slope = (0.0, *np.geomspace(0.3 / T, 30, 4)), (0.0, *np.geomspace(1 / T**3, 10, 6))
    length = min(0.5 * T, 20.0)
    waves = [np.exp(-0.5 * (gap / length) ** 2) * np.cos(w * gap) for w in np.arange(0.0, 0.9 * np.pi, 1.5 / length)]
    waves.append(np.exp(-0.5 * (gap / T) ** 2))
    return [a * low + b * curve for a in level for b in slope] + [v * wave for v in _WAVES for wave in waves]


def deviations(
    y: np.ndarray, variance: np.ndarray, theta: np.ndarray, time: np.ndarray, drift: str
) -> Iterator[Deviations]:
    """Forward orthogonal deviations, one per guess of the drift.

        y_t = a + b t + m_t + B theta_t + e_t,      Cov(m + e) = S = diag(v) + vbar K,      K one of `guesses`

    The transform is u = U^-1 Delta y with Delta the first differences ("none") or the second divided differences, which
    remove level and trend, and Delta S Delta' = U U', U upper triangular. So u_t involves only y_t, y_{t+1}, ... A
    model trained on y_1 .. y_{t-1} is independent of it whatever the level, the trend and the drift were up to then;
    with deviations from the past it would not be. Arellano and Bover 1995 (forward orthogonal deviations).

    Args:
        y, variance: [..., q, T]; theta: [..., T, d]; time: [T].
    """
    T = time.shape[0]
    t = (time - time[0]) / (time[-1] - time[0]) * (T - 1)
    delta = _differences(t, lost(drift))
    # Delta diag(v) Delta' for all columns at once.
    noise = (delta * variance[..., None, :]) @ delta.T
    scale = variance.mean(axis=-1)[..., None, None]
    both = np.concatenate(
        [
            (y @ delta.T)[..., None],
            np.broadcast_to((delta @ theta)[..., None, :, :], (*y.shape[:-1], len(delta), theta.shape[-1])),
        ],
        axis=-1,
    )[..., ::-1, :]
    for guess in guesses(drift, t):
        cov = noise + scale * (delta @ guess @ delta.T)
        # The upper factor is the lower factor of the reversed matrix.
        root = np.linalg.cholesky(cov[..., ::-1, ::-1])
        white = np.linalg.solve(root, both)[..., ::-1, :]
        logdet = 2 * np.log(np.diagonal(root, axis1=-2, axis2=-1)).sum(axis=-1)
        yield Deviations(white[..., 0], white[..., 1:], logdet)


def plausible(likelihoods: np.ndarray) -> np.ndarray:
    """[G, ...] which guesses of the drift the data do not rule out; likelihoods are 2 log L."""
    return likelihoods >= likelihoods.max(axis=0) - _PLAUSIBLE


def _differences(t: np.ndarray, k: int) -> np.ndarray:
    """[T - k, T] divided differences of order k: row i uses times i .. i + k and maps 1, t, .., t^(k-1) to 0."""
    T = len(t)
    delta = np.zeros((T - k, T))
    for j in range(k + 1):
        product = np.ones(T - k)
        for other in range(k + 1):
            if other != j:
                product *= t[j : T - k + j] - t[other : T - k + other]
        delta[np.arange(T - k), np.arange(T - k) + j] = 1 / product
    return delta

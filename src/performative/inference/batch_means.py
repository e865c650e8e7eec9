"""Batch means: how an average of correlated records varies, from the averages of its parts."""

import numpy as np

from performative.inference.outcome import Spread, share_of

# Parts that a run is cut into: Student's interval with so many less one degrees of freedom.
BATCHES = 20
# A run of fewer correlation times than this is too short: the corrected variance of its batches is no longer right.
_TIMES = 100.0


def batch_means(x: np.ndarray) -> Spread:
    """The mean of records [repeats, n, d] and its covariance, from B batches of L = n / B records each.

        cov = (1 / B) S c,    S = sum_k (m_k - m)(m_k - m)^T / (B - 1),    c = (1 - a / n) / (1 - a (B + 1) / n)

    m_k is the mean of batch k. Neighboring batches are correlated, so that they lie closer together than independent
    ones: with autocorrelations rho_k and a = 2 sum_k k rho_k / (1 + 2 sum_k rho_k), c makes the mean of S right up to
    terms of exp(-L / a). Chen, Lee, Tong and Zhang 2020 have batches of growing length, for rates that fall; this is
    for constant ones.
    """
    repeats, n, d = x.shape
    length = n // BATCHES
    if length < 2:
        raise ValueError(
            f"confidence: {n} records after the first quarter of the run are too few for {BATCHES} batches; run for "
            "longer, record more often, or give problem and algorithm."
        )
    x = x[:, n - length * BATCHES :]
    n = length * BATCHES
    means = x.reshape(repeats, BATCHES, length, d).mean(axis=2)
    center = means.mean(axis=1)
    away = means - center[:, None]
    S = np.einsum("rkj,rkl->rjl", away, away) / (BATCHES - 1)
    times, a = correlation(x - center[:, None])
    reach = np.minimum(a, n / (2.0 * (BATCHES + 1)))
    c = np.sqrt((1 - reach / n) / (1 - reach * (BATCHES + 1) / n))
    covariance = S / BATCHES * c[:, :, None] * c[:, None, :]
    short = np.any(n < _TIMES * times, axis=1)
    doubts: tuple[str, ...] = ()
    if np.any(short):
        doubts = (
            f"in {share_of(short)} the run is too short: its records are like {np.min(n / times):.0f} independent "
            f"ones, fewer than {_TIMES:.0f}, so that batches are still correlated and the start may not be "
            "forgotten. The interval may be too narrow.",
        )
    return Spread(center, covariance, BATCHES - 1.0, n, "batch means", doubts)


def correlation(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """1 + 2 sum_k rho_k and 2 sum_k k rho_k over it, [repeats, d], of centered records [repeats, n, d].

    Autocorrelations are summed in pairs as long as the pairs are positive: Geyer's initial positive sequence.
    """
    n = x.shape[1]
    size = 1 << (2 * n - 1).bit_length()
    most = max(2, n // 8 * 2)
    times, away = np.ones((len(x), x.shape[2])), np.zeros((len(x), x.shape[2]))
    block = max(1, (1 << 22) // (size * x.shape[2]))
    for first in range(0, len(x), block):
        part = x[first : first + block]
        power = np.abs(np.fft.rfft(part, size, axis=1)) ** 2
        gamma = np.fft.irfft(power, size, axis=1)[:, :most]
        rho = gamma / np.maximum(gamma[:, :1], 1e-300)
        pairs = rho.reshape(len(part), -1, 2, x.shape[2]).sum(axis=2)
        keep = np.repeat(np.cumprod(pairs > 0, axis=1), 2, axis=1)
        rho = rho * keep
        total = np.maximum(2 * rho.sum(axis=1) - 1, 1e-3)
        times[first : first + block] = total
        lag = np.arange(most)[None, :, None]
        away[first : first + block] = np.maximum(2 * (lag * rho).sum(axis=1) / total, 0.0)
    return times, away

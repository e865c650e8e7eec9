"""Batch means: the variance of an average of correlated records, from the averages of its parts."""

import numpy as np

from performative.inference.outcome import Spread, share_of

# Number of batches: Student's interval with one degree of freedom less.
BATCHES = 20
# A run of fewer correlation times than this is too short for the corrected variance of its batches to be accurate.
_TIMES = 100.0
# Numbers processed at once.
_NUMBERS = 1 << 22


def batch_means(x: np.ndarray) -> Spread:
    """The mean of records [repeats, n, d] and its covariance, from B batches of L = n / B records each.

        cov = (1 / B) S c,    S = sum_k (m_k - m)(m_k - m)^T / (B - 1),    c = (1 - a / n) / (1 - a (B + 1) / n)

    m_k is the mean of batch k. Neighboring batches are correlated, so they lie closer together than independent ones.
    For autocorrelations rho^k and a = 2 sum_k k rho^k / (1 + 2 sum_k rho^k) = 2 rho / (1 - rho^2), c makes the mean of
    S correct up to terms of exp(-L / a). Chen, Lee, Tong and Zhang 2020 use batches of growing length, for decaying
    rates; these are for constant ones.
    """
    repeats, n, d = x.shape
    length = n // BATCHES
    if length < 2:
        raise ValueError(
            f"confidence: {n} records after the first quarter of the run are too few for {BATCHES} batches; run for "
            "longer, record more often, or pass problem and algorithm."
        )
    x = x[:, n - length * BATCHES :]
    n = length * BATCHES
    means = x.reshape(repeats, BATCHES, length, d).mean(axis=2)
    center = means.mean(axis=1)
    away = means - center[:, None]
    S = np.einsum("rkj,rkl->rjl", away, away) / (BATCHES - 1)
    times = correlation_time(x - center[:, None])
    # Solve 1 + 2 sum_k rho^k = (1 + rho) / (1 - rho) for rho.
    reach = np.minimum((times**2 - 1) / (2 * times), n / (2.0 * (BATCHES + 1)))
    c = np.sqrt((1 - reach / n) / (1 - reach * (BATCHES + 1) / n))
    covariance = S / BATCHES * c[:, :, None] * c[:, None, :]
    short = np.any(n < _TIMES * times, axis=1)
    doubts: tuple[str, ...] = ()
    if np.any(short):
        doubts = (
            f"in {share_of(short)} the run is too short: its records are worth {np.min(n / times):.0f} independent "
            f"ones, fewer than {_TIMES:.0f}, so batches are still correlated and the start may not be "
            "forgotten. The interval may be too narrow.",
        )
    return Spread(center, covariance, BATCHES - 1.0, n, "batch means", doubts)


def correlation_time(x: np.ndarray) -> np.ndarray:
    """1 + 2 sum_k rho_k, at least 1, of centered records [repeats, n, d]: [repeats, d].

    Autocorrelations are summed in pairs as long as the pairs are positive: Geyer's initial positive sequence.
    """
    n, d = x.shape[1:]
    size, most = 1 << (2 * n - 1).bit_length(), max(2, n // 8 * 2)
    found = np.ones((len(x), d))
    block = max(1, _NUMBERS // (size * d))
    for first in range(0, len(x), block):
        part = x[first : first + block]
        gamma = np.fft.irfft(np.abs(np.fft.rfft(part, size, axis=1)) ** 2, size, axis=1)[:, :most]
        pairs = (gamma / np.maximum(gamma[:, :1], 1e-300)).reshape(len(part), -1, 2, d).sum(axis=2)
        positive = np.cumprod(pairs > 0, axis=1)
        found[first : first + block] = np.maximum(2 * np.sum(pairs * positive, axis=1) - 1, 1.0)
    return found

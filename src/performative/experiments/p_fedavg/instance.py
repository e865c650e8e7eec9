"""The Gaussian problem that both versions of the paper measure on."""

import numpy as np

import performative as pf


def gaussian(
    clients: int, mean: float, sensitivity: float, mean_variance: float, sensitivity_variance: float, scale: float,
    seed: int, weights: np.ndarray | None = None,
) -> pf.Problem:  # fmt: skip
    """z ~ N(m_i + eps_i theta, scale^2), l = (theta - z)^2 / 2; m_i, eps_i uniform, with exactly these moments.

    Moments are weighted by p_i (equal where none are given), so that theta_PS = mean / (1 - sensitivity) exactly.
    """
    rng = np.random.default_rng(seed)
    m, eps = rng.uniform(size=(2, clients))
    p = np.full(clients, 1 / clients) if weights is None else np.asarray(weights)
    population = pf.populations.Gaussian(
        _with_moments(m, p, mean, mean_variance), _with_moments(eps, p, sensitivity, sensitivity_variance), scale
    )
    return pf.Problem(pf.losses.squared, population, weights)


def _with_moments(x: np.ndarray, p: np.ndarray, mean: float, variance: float) -> np.ndarray:
    """Shifted and scaled to weighted mean and weighted variance."""
    x = x - p @ x
    return mean + x * np.sqrt(variance / (p @ x**2))

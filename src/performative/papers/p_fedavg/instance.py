"""The Gaussian problem that both versions of the paper measure on, and its exact error."""

from typing import Any

import numpy as np

import performative as pf
from performative.theory import Moments, gaussian_moments, gaussian_rate

# No run of these figures needs models on the way, or how far clients end from each other.
QUIET: dict[str, Any] = {"callbacks": [pf.callbacks.Progress(False)], "dtype": "float64"}


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


def clients_of(problem: pf.Problem) -> dict[str, Any]:
    """m_i, eps_i, scale and p_i, as the functions of `pf.theory` take them."""
    population: Any = problem.population
    read = {name: np.asarray(getattr(population, name), np.float64) for name in ("mean", "sensitivity", "scale")}
    return read | {"weights": np.asarray(problem.client_weights, np.float64)}


def harmonic_steps(beta: float, gamma: float, rounds: int, local_steps: int) -> np.ndarray:
    """eta_t = beta / (t + gamma) of every local step."""
    return beta / (np.arange(rounds * local_steps) + gamma)


def exact(problem: pf.Problem, eta: np.ndarray, local_steps: int, start: float, **how: Any) -> Moments:
    """Mean, variance and squared error after each round, without sampling; how: scheme, k, deploy."""
    return gaussian_moments(**clients_of(problem), eta=eta, local_steps=local_steps, start=start, **how)


def limit_of(problem: pf.Problem, beta: float, local_steps: int, **how: Any) -> float:
    """lim t MSE_t in closed form."""
    return gaussian_rate(**clients_of(problem), beta=beta, local_steps=local_steps, **how)


def steps_to(moments: Moments, level: float, local_steps: int) -> float:
    """Local steps after which the root mean square error stays below `level`; infinite where it does not.

    The last exit, not the first hit: with many local steps the way overshoots.
    """
    outside = np.flatnonzero(np.sqrt(moments.mse) > level)
    if len(outside) and outside[-1] == len(moments.mse) - 1:
        return float("inf")
    return float((outside[-1] + 1) * local_steps if len(outside) else 0)


def thinned(x: np.ndarray, moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    """About 200 points of the root mean square error for a figure: even on a plain and on a logarithmic axis."""
    last = min(len(x), len(moments.mse)) - 1
    kept = np.unique(np.concatenate([np.linspace(0, last, 100), np.geomspace(1, last, 100)]).astype(int))
    return x[kept], np.sqrt(moments.mse[kept])


def square(distance: np.ndarray, expected: float) -> tuple[float, float]:
    """Mean over repeats of distance^2, and the standard error that it should have.

    The error of theta is near to normal, so that distance^2 has variance 2 expected^2: that is known better than from
    a handful of repeats.
    """
    values = np.asarray(distance, np.float64) ** 2
    return float(values.mean()), float(expected * np.sqrt(2 / len(values)))


def _with_moments(x: np.ndarray, p: np.ndarray, mean: float, variance: float) -> np.ndarray:
    """Shifted and scaled to weighted mean and weighted variance."""
    x = x - p @ x
    return mean + x * np.sqrt(variance / (p @ x**2))

"""Weights on deployments that depend only on models deployed so far, which makes the test exact."""

import numpy as np

# Share of the weight on the first deployment if models converge: it is the farthest from the rest.
_FIRST = 0.5
# Contraction guessed before there is data, with the weight of one step.
_CONTRACTION = 0.6
# Share of the steps' variance assumed to be noise before there is data: small, as a converging path hardly wanders.
_WANDER = 0.05
_TINY = 1e-300


def settling(theta: np.ndarray, n: int) -> np.ndarray:
    """Weights for models that converge to a limit.

        a_t = theta_t - mu_t,      theta_{s+1} - theta_s = kappa (mu - theta_s)  fitted on s < t

    w_t^2 is a share of the remaining budget: that of a_t^2 in the forecast of all that remains. The sum of w_t^2 is 1
    exactly.

    Args:
        theta: [..., T], one parameter; returns [..., n]. The sign is that of theta_0 - mu.
    """
    lead = theta.shape[:-1]
    w = np.zeros((*lead, n))
    w[..., 0] = np.sqrt(_FIRST) if n > 1 else 1.0
    left, sign = np.full(lead, 1 - _FIRST), np.ones(lead)
    for t in range(1, n):
        x, step = theta[..., :t], np.diff(theta[..., : t + 1], axis=-1)
        x_mean, step_mean = x.mean(axis=-1), step.mean(axis=-1)
        x, fluctuation = x - x_mean[..., None], step - step_mean[..., None]
        size = (step**2).mean(axis=-1)
        kappa = (size * (1 - _CONTRACTION) - (x * fluctuation).sum(axis=-1)) / np.maximum(
            (x**2).sum(axis=-1) + size, _TINY
        )
        kappa = np.clip(kappa, 0.1, 1.9)
        miss = ((fluctuation + kappa[..., None] * x) ** 2).sum(axis=-1)
        noise = (miss + _WANDER * size) / (t + _WANDER)
        mu = x_mean + step_mean / kappa
        a, ahead, square = theta[..., t] - mu, n - 1 - t, (1 - kappa) ** 2
        fading = square * (1 - square**ahead) / (1 - square)
        to_come = a**2 * fading + noise * (ahead - fading) / (1 - square)
        if t == 1:
            sign = np.where(theta[..., 0] >= mu, 1.0, -1.0)
        w[..., t], left = _spend(a * sign, to_come, left, ahead)
    return w


def wandering(theta: np.ndarray, n: int) -> np.ndarray:
    """Weights for models that fluctuate around a level: a_t = theta_t - mean(theta_0 .. theta_t); see `settling`."""
    lead = theta.shape[:-1]
    w = np.zeros((*lead, n))
    left = np.ones(lead)
    if n == 1:
        return w + 1.0
    for t in range(1, n):
        x = theta[..., : t + 1]
        mu = x.mean(axis=-1)
        spread, ahead = ((x - mu[..., None]) ** 2).sum(axis=-1) / t, n - 1 - t
        # Half: early variances are too high as often as too low, and any budget not spent by the end is lost.
        w[..., t], left = _spend(theta[..., t] - mu, 0.5 * ahead * spread, left, ahead)
    return w


def _spend(a: np.ndarray, to_come: np.ndarray, left: np.ndarray, ahead: int) -> tuple[np.ndarray, np.ndarray]:
    share = a**2 / np.maximum(a**2 + to_come, _TINY) if ahead else np.ones_like(left)
    return np.where(a >= 0, 1.0, -1.0) * np.sqrt(share * left), left * (1 - share)


def weights(theta: np.ndarray, n: int) -> list[np.ndarray]:
    """Both kinds of weights for every parameter: theta [..., T, d] to [..., d, n]."""
    by_parameter = np.swapaxes(theta, -1, -2)
    return [settling(by_parameter, n), wandering(by_parameter, n)]

"""Where federated training settles when every client pulls by grad F_i = slope_i x - mean_i: exactly, one parameter.

Gaussian data with the squared loss: slope_i = 1 - eps_i. Beside the rates of `heterogeneity` and `selection`.
"""

import dataclasses
from typing import Any

import numpy as np

from performative.theory.heterogeneity import participation_variance


@dataclasses.dataclass(frozen=True)
class Floor:
    """|grad F|^2 as t grows, exactly: point is where the mean settles, drift its squared gradient.

    noise, participation: their parts of the variance, to first order in eta
    """

    point: float
    drift: float
    noise: float
    participation: float


def quadratic_floor(
    mean: Any, slope: Any, eta: float, local_steps: int, sigma: float = 0.0, participants: int | None = None
) -> Floor:
    """Beside `fedavg`: grad F_i = slope_i x - mean_i with one parameter (Gaussian data: slope_i = 1 - eps_i).

        point: sum R_i (slope_i x - mean_i) = 0,   R_i = (1 - (1 - eta slope_i)^tau) / slope_i
        noise -> lambda eta sigma^2 / (2 K),   participation -> lambda eta tau w mean g_i^2 / 2,   lambda = mean slope_i

    with g_i the gradients at the optimum. The drift is exact, and (eta (tau - 1) / 2)^2 (mean slope_i g_i)^2 for small
    eta; the other two are limits as eta -> 0. So the bound's constants 4, 8 and 8 are 1/2, 1/2 and at most 1/4 here.
    """
    m, lam = np.broadcast_arrays(*(np.atleast_1d(np.asarray(v, np.float64)) for v in (mean, slope)))
    R = client_work(lam, eta, local_steps)
    point = float(np.sum(R * m) / np.sum(R * lam))
    center = float(lam.mean())
    g = lam * (m.mean() / center) - m
    K = len(m) if participants is None else participants
    w = participation_variance(len(m), K)
    return Floor(
        point, (center * point - float(m.mean())) ** 2, center * eta * sigma**2 / (2.0 * K),
        center * eta * local_steps * w * float(np.mean(g**2)) / 2.0,
    )  # fmt: skip


def cycle_point(mean: Any, slope: Any, groups: Any, eta: float, local_steps: int = 1, weights: Any = None) -> float:
    """Where one whole cycle of groups returns to, as the first group finds it: grad F_i = slope_i x - mean_i.

    A round of group g is affine, x -> a_g x + b_g, and the cycle is their composition. Exact, one parameter.
    """
    m, lam = np.broadcast_arrays(*(np.atleast_1d(np.asarray(v, np.float64)) for v in (mean, slope)))
    p = np.full(len(m), 1.0 / len(m)) if weights is None else np.asarray(weights, np.float64)
    keep, level = 1.0, 0.0
    for ids in groups:
        ids = np.asarray(ids)
        share, work = p[ids] / p[ids].sum(), client_work(lam[ids], eta, local_steps)
        a, b = 1.0 - share @ (work * lam[ids]), share @ (work * m[ids])
        keep, level = a * keep, a * level + b
    return float(level / (1.0 - keep))


def settled_point(mean: Any, slope: Any, weights: Any, eta: float, local_steps: Any, nova: bool = False) -> float:
    """Where FedAvg, or FedNova, settles under unequal work: grad F_i = slope_i x - mean_i, no noise.

        sum_i c_i R_i (slope_i x - mean_i) = 0,   R_i = (1 - (1 - eta slope_i)^tau_i) / slope_i

    c_i = p_i for FedAvg and p_i / tau_i for FedNova. As eta -> 0 that is the minimiser of sum w_i F_i, with
    `objective_weights` or p. Data that react: slope_i = 1 - eps_i.
    """
    m, lam, p, tau = (np.asarray(v, np.float64) for v in np.broadcast_arrays(mean, slope, weights, local_steps))
    c = (p / tau if nova else p) * client_work(lam, eta, tau)
    return float(np.sum(c * m) / np.sum(c * lam))


def client_work(slope: np.ndarray, eta: float, steps: Any) -> np.ndarray:
    """R_i = sum_k eta (1 - eta slope_i)^k over tau_i steps: how far a client goes for each unit of its gradient."""
    flat = np.abs(slope) < 1e-12
    safe = np.where(flat, 1.0, slope)
    return np.where(flat, eta * np.asarray(steps, np.float64), (1.0 - (1.0 - eta * safe) ** steps) / safe)

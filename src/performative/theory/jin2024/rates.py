"""The exact error, compared with the bound of a theorem.

    t E |theta_t - theta_PS|^2 -> trace P,      (beta H - I/2) P + P (beta H - I/2)^T = beta^2 S

with eta_t = beta / (t + gamma), H the derivative of theta -> grad f(theta; theta) at theta_PS and S the covariance of
the noise of one local step. In one dimension: beta^2 S / (2 beta H - 1).
"""

import dataclasses
import math
from typing import Any

import numpy as np
import scipy.linalg

from performative._base.arguments import Count, Finite, Positive, Values, checked
from performative.theory.gaussian import gaussian_moments, gaussian_rate, read_clients, weight_moments
from performative.theory.jin2024.theorems import Theorem


@dataclasses.dataclass(frozen=True, eq=False)
class Beside:
    """A theorem's bound next to the exact error, after each round, the start first.

    Attributes:
        t: local steps so far; exact: E (theta_t - theta_PS)^2; bound: the theorem's bound on it
        bound_limit, exact_limit: the limits of t times each
    """

    t: np.ndarray
    bound: np.ndarray
    exact: np.ndarray
    bound_limit: float
    exact_limit: float

    @property
    def looseness(self) -> np.ndarray:
        """The factor by which the bound is too large."""
        return self.bound / self.exact


@checked
def gaussian_beside(
    theorem: Theorem, mean: Values, sensitivity: Values, scale: Values, *, weights: Values | None = None,
    batch: Count = 1, start: Finite = 0.0, rounds: Count = 1000,
) -> Beside:  # fmt: skip
    """Compare the bound of a theorem with the exact error of the Gaussian problem under the theorem's own steps.

    The theorem should come from `Assumptions.of_gaussian` with the same arguments. Its limits: v for the bound,
    `gaussian_rate` for the error, infinite if 2 beta (1 - eps_bar) <= 1 and the error falls more slowly than 1/t.
    """
    E = theorem.local_steps
    how: dict[str, Any] = {"weights": weights, "batch": batch, "scheme": theorem.scheme, "k": theorem.k}
    t = np.arange(rounds + 1) * E
    eta = theorem.eta(np.arange(rounds * E))
    exact = gaussian_moments(mean, sensitivity, scale, eta, local_steps=E, start=start, **how).mse
    _, eps, _, p = read_clients(mean, sensitivity, scale, weights)
    kept = 2.0 * theorem.beta * (1.0 - float(p @ eps)) > 1.0
    limit = gaussian_rate(mean, sensitivity, scale, theorem.beta, local_steps=E, **how) if kept else math.inf
    return Beside(t, np.asarray(theorem.bound(t)), exact, math.inf if theorem.unmet else theorem.v, limit)


@checked
def linear_rate(jacobian: Values, noise: Values, beta: Positive) -> float:
    """lim t E |theta_t - theta_PS|^2 = trace P of P-FedAvg near a stable point, in any dimension.

    Args:
        jacobian: H, [d, d], the derivative of grad f(theta; theta), the reaction of the data included
        noise: S, [d, d], as from `step_noise`

    Needs beta times the smallest real part of H's eigenvalues above 1/2; infinite otherwise, when the start or the
    clients' drift is forgotten more slowly than 1/t. Exact in the limit for smooth problems.
    """
    H, S = (np.atleast_2d(np.asarray(x, np.float64)) for x in (jacobian, noise))
    if H.ndim != 2 or H.shape[0] != H.shape[1] or S.shape != H.shape:
        raise ValueError(f"jacobian and noise must both be [d, d]; got shapes {H.shape} and {S.shape}.")
    A = beta * H - 0.5 * np.eye(len(H))
    if not np.linalg.eigvals(A).real.min() > 0:
        return math.inf
    return float(np.trace(scipy.linalg.solve_continuous_lyapunov(A, beta**2 * S)))


@checked
def step_noise(
    covariance: Values, gradient: Values, *, weights: Values | None = None, local_steps: Count = 1, batch: Count = 1,
    scheme: str = "full", k: int | None = None,
) -> np.ndarray:  # fmt: skip
    """S of `linear_rate`, [d, d]: the noise of samples and of participation, per local step.

        S = sum_i E[w_i^2] C_i / n + E Cov(sum_i w_i g_i)

    Args:
        covariance: C_i of one sample's gradient at theta_PS, [N, d, d]; gradient: g_i = grad f_i at theta_PS, [N, d]
    """
    C, g = np.asarray(covariance, np.float64), np.asarray(gradient, np.float64)
    if g.ndim != 2 or C.shape != (*g.shape, g.shape[1]):
        raise ValueError(f"covariance must be [N, d, d] and gradient [N, d]; got shapes {C.shape} and {g.shape}.")
    _, _, _, p = read_clients(np.zeros(len(g)), 0.0, 1.0, weights)
    w, mean = weight_moments(p, scheme, k), p @ g
    chosen = (w.pair - 1.0) * np.outer(mean, mean) + np.einsum("i,ij,ik->jk", w.own, g, g)
    return np.einsum("i,ijk->jk", w.square, C) / batch + local_steps * chosen

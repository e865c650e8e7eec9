"""P-FedAvg on the scalar Gaussian problem, exactly: no sampling, no bound.

    Z_i ~ N(m_i + eps_i theta, scale_i^2),   l(theta; z) = (theta - z)^2 / 2

After E local steps client i has A_i theta + B_i + noise of variance S_i. With delta_i = (A_i - 1) theta + B_i + noise
and independent weights w_i, the update sum_i w_i delta_i has known mean and variance.
"""

import dataclasses
from typing import Any

import numpy as np

from performative._base.arguments import Count, Finite, Values, checked

_NUMBERS = 1 << 22  # rounds times clients processed at once


@dataclasses.dataclass(frozen=True, eq=False)
class Moments:
    """Moments after each round, the start first, [rounds + 1].

    Attributes:
        mean: E[theta_r]; variance: Var[theta_r]; mse: E[(theta_r - theta_PS)^2], NaN if eps_bar = 1
    """

    mean: np.ndarray
    variance: np.ndarray
    mse: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class WeightMoments:
    """Second moments of a round's weights; E[w_i] = p_i under every scheme.

    E[(sum_i w_i u_i)^2] = pair (sum_i p_i u_i)^2 + sum_i own_i u_i^2,      E[w_i^2] = square_i
    """

    pair: float
    own: np.ndarray
    square: np.ndarray


def weight_moments(weights: np.ndarray, scheme: str, k: int | None) -> WeightMoments:
    """Full: w = p. Scheme I: multinomial(K, p) / K. Scheme II: p_i N / K on a uniform K-subset.

    Jin et al. 2024, Section 2.4; updates are averaged, not models.
    """
    p, N = weights, len(weights)
    check_scheme(scheme, k, N)
    if scheme == "full" or k is None:
        return WeightMoments(1.0, np.zeros(N), p**2)
    if scheme == "one":
        return WeightMoments(1.0 - 1.0 / k, p / k, (1.0 - 1.0 / k) * p**2 + p / k)
    pair = N * (k - 1) / (k * (N - 1)) if N > 1 else 1.0
    return WeightMoments(pair, (N / k - pair) * p**2, N / k * p**2)


def check_scheme(scheme: str, k: int | None, clients: int) -> None:
    """Check for a known scheme, with a valid k if it takes one."""
    if scheme not in ("full", "one", "two"):
        raise ValueError(f'scheme must be "full", "one" or "two"; got {scheme!r}.')
    if scheme == "full":
        if k is not None:
            raise ValueError(f'k is for scheme "one" or "two"; with "full" omit it (got k={k}).')
        return
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1 or (scheme == "two" and k > clients):
        limit = f" and k <= {clients} clients" if scheme == "two" else ""
        raise ValueError(f'scheme "{scheme}" needs a whole number of clients k >= 1{limit}; got k={k!r}.')


@checked
def gaussian_moments(
    mean: Values, sensitivity: Values, scale: Values, eta: Values, *, local_steps: Count = 1,
    weights: Values | None = None, batch: Count = 1, start: Finite = 0.0, scheme: str = "full", k: int | None = None,
    deploy: str = "step",
) -> Moments:  # fmt: skip
    """E[theta_r], Var[theta_r] and E[(theta_r - theta_PS)^2] of P-FedAvg after each round.

    Args:
        mean, sensitivity, scale: m_i, eps_i and the standard deviation, a number or one per client
        eta: the step size of every local step t = 0, 1, ..., rounds * E - 1, in order
        batch: n, samples per step; start: theta_0; scheme: "full", "one" or "two" with k clients per round
        deploy: "step" (each local model acts on its own data), "round" (the model at the round's start does), "never"
            (theta_0 does: static learning)
    """
    m, eps, sd, p = read_clients(mean, sensitivity, scale, weights)
    steps = read_steps(eta, local_steps)
    if deploy not in ("step", "round", "never"):
        raise ValueError(f'deploy must be "step", "round" or "never"; got {deploy!r}.')
    w = weight_moments(p, scheme, k)
    mu, variance = float(start), 0.0
    means, variances = [mu], [variance]
    rows = max(1, _NUMBERS // len(p))
    for first in range(0, len(steps), rows):
        A, B, S = local_maps(m, eps, sd**2 / batch, steps[first : first + rows], deploy, float(start))
        A = A - 1.0
        a, b, noise = A @ p, B @ p, S @ w.square
        aa, ab, bb = A**2 @ w.own, (A * B) @ w.own, B**2 @ w.own
        for r in range(len(a)):
            move = a[r] * mu + b[r]
            # Var(theta + sum w u) given theta, averaged over theta, plus the variance due to theta.
            spread = (w.pair - 1.0) * (move**2 + a[r] ** 2 * variance)
            spread += aa[r] * (mu**2 + variance) + 2.0 * ab[r] * mu + bb[r]
            variance = (1.0 + a[r]) ** 2 * variance + spread + noise[r]
            mu = mu + move
            means.append(mu)
            variances.append(variance)
    gap = 1.0 - float(p @ eps)
    stable = float(p @ m) / gap if abs(gap) > 1e-12 else np.nan
    center, spread_out = np.asarray(means), np.asarray(variances)
    return Moments(center, spread_out, spread_out + (center - stable) ** 2)


def local_maps(
    m: np.ndarray, eps: np.ndarray, noise: np.ndarray, steps: np.ndarray, deploy: str, start: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A_i, B_i, S_i of every round, [rounds, N]: theta_i = A_i theta + B_i + N(0, S_i) after E steps from
    theta.

    One step is theta_i <- (1 - eta) theta_i + eta (m_i + eps_i deployed) + eta N(0, noise_i).
    """
    shape = (len(steps), len(m))
    A, B, S = np.ones(shape), np.zeros(shape), np.zeros(shape)
    for eta in steps.T[:, :, None]:
        keep = 1.0 - eta * (1.0 - eps) if deploy == "step" else np.broadcast_to(1.0 - eta, shape)
        A, B, S = keep * A, keep * B + eta * m, keep**2 * S + eta**2 * noise
        if deploy == "round":
            A = A + eta * eps
        elif deploy == "never":
            B = B + eta * eps * start
    return A, B, S


@checked
def gaussian_rate(
    mean: Values, sensitivity: Values, scale: Values, beta: float, *, local_steps: Count = 1,
    weights: Values | None = None, batch: Count = 1, scheme: str = "full", k: int | None = None,
) -> float:  # fmt: skip
    """lim t * MSE_t for eta_t = beta / (t + gamma): the exact constant behind the O(1/T) of Theorems 3.1 to
    3.3.

        t MSE_t -> beta^2 (sum_i E[w_i^2] scale_i^2 / n + E V) / (2 beta kappa - 1),     kappa = 1 - eps_bar
        > 0

    V = Var(sum_i w_i g_i) over who participates, g_i = (1 - eps_i) theta_PS - m_i the gradients at the stable
    point: 0 with full participation, sum p g^2 / K in Scheme I, (N - K) / (K (N - 1)) sum p g^2 in Scheme
    II with equal weights. Needs 2 beta kappa > 1: with a smaller step the start is forgotten more slowly
    than 1/t. Holds for deploy "step" and "round".
    """
    kappa, samples, drawn = step_variances("gaussian_rate", mean, sensitivity, scale, weights, batch, scheme, k)
    if not 2.0 * beta * kappa > 1.0:
        raise ValueError(
            f"gaussian_rate needs 2 beta (1 - eps_bar) > 1; got {2.0 * beta * kappa:.6g} (beta={beta:g}). "
            f"Below that the error falls more slowly than 1/t: take beta > {0.5 / kappa:.6g}."
        )
    return beta**2 * (samples + local_steps * drawn) / (2.0 * beta * kappa - 1.0)


def step_variances(
    owner: str, mean: Any, sensitivity: Any, scale: Any, weights: Any, batch: int, scheme: str, k: int | None
) -> tuple[float, float, float]:
    """1 - eps_bar > 0, and the variances due to samples and to participation of a step at the stable point."""
    m, eps, sd, p = read_clients(mean, sensitivity, scale, weights)
    kappa = 1.0 - float(p @ eps)
    if not kappa > 0:
        raise ValueError(f"{owner} needs an average sensitivity below 1; it is {1.0 - kappa:.6g}.")
    w = weight_moments(p, scheme, k)
    g = (1.0 - eps) * float(p @ m) / kappa - m
    return kappa, float(np.sum(w.square * sd**2)) / batch, float(np.sum(w.own * g**2))


def read_clients(
    mean: Any, sensitivity: Any, scale: Any, weights: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """m_i, eps_i, scale_i and p_i, each [N]."""
    m, eps, sd, p = with_weights(weights, mean=mean, sensitivity=sensitivity, scale=scale)
    if np.any(sd < 0):
        raise ValueError(f"scale is a standard deviation and must be >= 0; got {scale}.")
    return m, eps, sd, p


def by_client(**given: Any) -> list[np.ndarray]:
    """Numbers, or lists of one per client, each as [N]."""
    arrays = {name: np.atleast_1d(np.asarray(value, np.float64)) for name, value in given.items()}
    N = max(array.shape[0] for array in arrays.values())
    for name, array in arrays.items():
        if array.ndim > 1 or array.shape[0] not in (1, N) or not array.size:
            raise ValueError(f"{name} must be a number or one per client, [{N}]; got shape {np.shape(given[name])}.")
        if not np.all(np.isfinite(array)):
            raise ValueError(f"{name} must contain finite numbers; got {given[name]}.")
    return [np.broadcast_to(array, N) for array in arrays.values()]


def with_weights(weights: Any, **given: Any) -> list[np.ndarray]:
    """As `by_client` with p_i at the end, equal if `weights` is None."""
    arrays = by_client(**given, **({} if weights is None else {"weights": weights}))
    if weights is None:
        arrays.append(np.full(len(arrays[0]), 1.0 / len(arrays[0])))
    check_weights(arrays[-1])
    return arrays


def check_weights(p: np.ndarray) -> None:
    """Raise if weights are negative or do not sum to one."""
    if np.any(p < 0) or abs(p.sum() - 1.0) > 1e-6:
        raise ValueError(f"weights must not be negative and must sum to one; they sum to {p.sum():.6g}.")


def read_steps(eta: Any, local_steps: int) -> np.ndarray:
    """Steps by round, [rounds, E]."""
    eta = np.asarray(eta, np.float64)
    if not np.all(np.isfinite(eta) & (eta >= 0)):
        raise ValueError("eta must contain finite, non-negative steps.")
    if eta.ndim != 1 or len(eta) % local_steps:
        raise ValueError(f"eta must contain a step per local step, [rounds * {local_steps}]; got shape {eta.shape}.")
    return eta.reshape(-1, local_steps)

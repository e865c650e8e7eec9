"""Where retraining leads from here: the stable point, how fast, and the loss relative to the optimum."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from performative._engine.risk import client_risks, decoupled_risk
from performative.audit.fit import Fit, fit
from performative.audit.fitted import fitted_problem
from performative.audit.log import ClientLog
from performative.populations.shifts import Linear
from performative.problem import Problem
from performative.solve import equilibria, optimal_point

# Deployments after which we stop counting.
_FOREVER = 100_000
# Risks this close, as a share, are equal: both are sums over many rows in double precision.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Outlook:
    """The result of `outlook`.

    Attributes:
        stable, optimal: [d] where retraining settles, and where the risk is least; None if there is no such point.
            For losses other than the squared loss the best point found: a warning (`risk-falls-far-out`) says if the
            risk falls again far away
        stable_limits: [2, d] interval of the stable point, None for losses other than the squared loss
        contraction: spectral radius of the retraining map's slope at the stable point; limits: (lower, upper)
        contracts: whether it is below 1: retraining converges there from nearby
        deployments: how many more until the model stays within the tolerance; None if it never does
        gap: |stable - optimal|; excess: performative risk at the stable point minus that at the optimum
        slopes: [N, d, d] each client's contribution to the slope: their sum is the slope
        slope_draws: [r, N, d, d] draws of the same that reflect the errors of the fits, at the point found
    """

    stable: np.ndarray | None
    optimal: np.ndarray | None
    stable_limits: np.ndarray | None
    contraction: float
    contraction_limits: tuple[float, float]
    contracts: bool
    deployments: int | None
    gap: float
    excess: float
    slopes: np.ndarray
    tolerance: float
    problem: Problem | None
    slope_draws: np.ndarray

    @property
    def settles(self) -> bool | None:
        """Whether retraining settles; None if the limits of the factor contain 1."""
        low, high = self.contraction_limits
        return None if low < 1 <= high else self.contraction < 1


def outlook(
    logs: Sequence[ClientLog],
    weights: Any = None,
    loss: Any = None,
    *,
    drift: str = "linear",
    tolerance: float = 0.01,
    level: float = 0.95,
    draws: int = 500,
    seed: int = 0,
    **layout: Any,
) -> Outlook:
    """Predict what full retraining on each deployment's data does from here, if the response stays as fitted.

        theta' = Phi(theta) = argmin over x of sum_i p_i E_{Z ~ D_i(theta)} l(x; Z)
        Phi'(theta) = - H^-1 sum_i p_i d/dphi grad f_i(theta; phi),      at phi = theta = the stable point

    Args:
        loss: None for |theta - z|^2 / 2, columns in the order of the parameters: then Phi(theta) = sum_i p_i mean_i and
            everything is in closed form, with intervals from draws of the fit; else any loss, by `fitted_problem`
            (`layout` is passed on: features, label, intercept, domain)
        tolerance: settled means |theta - stable| <= tolerance |stable|

    A trend is assumed to stop now: if it continues, the stable point moves. Sampling noise of later data is ignored:
    the model will keep fluctuating around the point. Not for models that take a step instead of retraining in full.
    """
    N = len(logs)
    p = np.full(N, 1 / N) if weights is None else np.asarray(weights, np.float64)
    if p.shape != (N,) or np.any(p < 0) or abs(p.sum() - 1) > 1e-6:
        raise ValueError(f"outlook: weights must be {N} numbers >= 0 that sum to one; got {p.tolist()}.")
    fits = [fit(log, drift, draws, seed + i) for i, log in enumerate(logs)]
    # Clients may have missed the last deployments; the current model is the latest that any of them saw.
    here = max(logs, key=lambda log: log.time[-1]).theta[-1]
    if loss is not None:
        return _general(fitted_problem(logs, fits, loss, p, **layout), fits, p, here, tolerance, level)
    q, d = fits[0].B.shape
    if q != d:
        raise ValueError(
            f"outlook: the squared loss needs one column per parameter; got {q} columns and {d} parameters. Pass loss=."
        )
    B = np.stack([f.B for f in fits])
    a = np.stack([_intercept(f, f.level, f.B) for f in fits])
    J = np.tensordot(p, B, 1)
    radius = _radius(J)
    stable = _solve(np.eye(d) - J, p @ a)
    M = np.eye(d) - B
    optimal = _solve(np.einsum("i,ijk,ijl->kl", p, M, M), np.einsum("i,ijk,ij->k", p, M, a))
    B_draws = np.stack([f.B_draws for f in fits])
    a_draws = np.stack([_intercept(f, f.level_draws, f.B_draws) for f in fits])
    J_draws = np.tensordot(p, B_draws, 1)
    tail = [(1 - level) / 2, (1 + level) / 2]
    points = np.linalg.solve(np.eye(d) - J_draws, np.tensordot(p, a_draws, 1)[..., None])[..., 0]
    gap = excess = np.nan
    if stable is not None and optimal is not None:
        gap = float(np.linalg.norm(stable - optimal))
        # The variance of the rows is the same at both points and cancels.
        miss = [0.5 * float(p @ ((M @ theta - a) ** 2).sum(axis=-1)) for theta in (stable, optimal)]
        excess = miss[0] - miss[1]
    return Outlook(
        stable, optimal, np.quantile(points, tail, axis=0), radius, _limits(radius, J_draws, level), radius < 1,
        None if stable is None else settling_time(J, here - stable, tolerance * float(np.linalg.norm(stable))),
        gap, excess, p[:, None, None] * B, tolerance, None, p[:, None, None] * np.swapaxes(B_draws, 0, 1),
    )  # fmt: skip


def _limits(radius: float, draws: np.ndarray, level: float) -> tuple[float, float]:
    """Limits of a spectral radius from draws [r, d, d] of its matrix.

    It is biased upwards by noise, so percentiles alone are too high: the interval also covers their mirror image.
    """
    radii = np.abs(np.linalg.eigvals(draws)).max(axis=-1)
    low, high = np.quantile(radii, [(1 - level) / 2, (1 + level) / 2])
    return max(float(min(low, 2 * radius - high)), 0.0), float(max(high, 2 * radius - low))


def _general(
    problem: Problem, fits: Sequence[Fit], p: np.ndarray, here: np.ndarray, tolerance: float, level: float
) -> Outlook:
    with jax.enable_x64(True):
        points = equilibria(problem, start=here)
        attracting = [point for point in points if point.attracting is not False]
        stable = np.asarray((attracting or list(points))[0].theta, np.float64)
        try:
            optimal = np.asarray(optimal_point(problem, start=here), np.float64)
        except ValueError:  # the risk falls without bound far from the logs; the stable point is still valid
            optimal = None
        per_shift = slopes_per_shift(problem, p, stable)
        risk = jax.jit(lambda theta: decoupled_risk(problem, jnp.asarray(p), theta, theta))
        excess = np.nan if optimal is None else float(risk(stable)) - float(risk(optimal))
        # A local minimum with a higher risk than the stable point is not an optimum.
        if excess < -_ROUNDING * (1.0 + abs(float(risk(stable)))):
            optimal, excess = None, np.nan
    slopes = per_shift @ np.stack([f.B for f in fits])
    draws = np.einsum("ijq,irqk->rijk", per_shift, np.stack([f.B_draws for f in fits]))
    J = slopes.sum(axis=0)
    radius = _radius(J)
    gap = np.nan if optimal is None else float(np.linalg.norm(stable - optimal))
    return Outlook(
        stable, optimal, None, radius, _limits(radius, draws.sum(axis=1), level), radius < 1,
        settling_time(J, here - stable, tolerance * float(np.linalg.norm(stable))),
        gap, excess, slopes, tolerance, problem, draws,
    )  # fmt: skip


def slopes_per_shift(problem: Problem, p: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """[N, d, q] effect of a shift of a client's rows on the retrained model; times B_i, its part of the slope.

        J_i = -H^-1 p_i (d/ds grad f_i(theta; rows + s)) B_i,      at s = B_i theta,      H = sum_i p_i hess f_i

    Args:
        problem: from `fitted_problem`.
    """
    population: Any = problem.population  # a Database with a Linear shift
    B = np.asarray(population.shift.sensitivity)
    rows = jnp.asarray(population.z) + (B @ theta)[:, None, :]
    free = np.broadcast_to(np.eye(B.shape[1]), (len(B), B.shape[1], B.shape[1]))
    moved = Problem(problem.loss, eqx.tree_at(lambda one: (one.z, one.shift), population, (rows, Linear(free))), p)

    def gradients(x: Any, shift: Any) -> Any:
        return jax.jacrev(lambda v: client_risks(moved, v, shift))(x)

    still = jnp.zeros(B.shape[1])
    hessian = np.tensordot(p, np.asarray(jax.jit(jax.jacfwd(gradients, 0))(theta, still)), 1)
    cross = np.asarray(jax.jit(jax.jacfwd(gradients, 1))(theta, still))
    return -np.linalg.solve(hessian, p[:, None, None] * cross)


def settling_time(J: np.ndarray, error: np.ndarray, within: float) -> int | None:
    """Fewest deployments after which |J^n error| stays <= within; None if it never does."""
    if _radius(J) >= 1 or within <= 0:
        return None
    # An asymmetric slope can first increase the error: `growth` bounds the norm of its powers.
    growth, product = 1.0, J
    while (size := float(np.linalg.norm(product, 2))) >= 1:
        growth, product = max(growth, size), J @ product
    outside = -1
    for n in range(_FOREVER):
        size = float(np.linalg.norm(error))
        if size > within:
            outside = n
        if growth * size <= within:
            return outside + 1
        error = J @ error
    return None


def _radius(J: np.ndarray) -> float:
    return float(np.abs(np.linalg.eigvals(J)).max())


def _intercept(f: Fit, level: np.ndarray, B: np.ndarray) -> np.ndarray:
    return level - B @ f.here


def _solve(A: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    return None if np.linalg.cond(A) > 1e10 else np.linalg.solve(A, b)

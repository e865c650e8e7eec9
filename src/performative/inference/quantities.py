"""Risks at the stable point, from a confidence region for it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from performative.inference.outcome import Interval, Spread
from performative.problem import Problem
from performative.solve.landscape import Landscape, risk_of, survey
from performative.solve.optimal import optimal_point
from performative.types import Theta

_BISECTIONS = 60
# Rounding slack of a risk, relative to its size: an endpoint of an interval may be the least risk itself.
_ROUNDING = 1e-9


def risk_and_gap(problem: Problem, spread: Spread, level: float, first: Theta) -> tuple[Interval, Interval | None]:
    """Intervals for PR(theta_PS) and PR(theta_PS) - PR(theta_PO): their ranges over a confidence region of theta_PS.

        PR(theta_PS) in [min, max] of PR(center) + g.e + e.K e / 2,      e.cov^-1 e <= r^2

    with gradient and curvature of PR. r is that of one direction if the gradient dominates: to first order this is the
    delta method, and with the curvature the profile likelihood interval. If the region may contain a point at which
    the gradient vanishes (theta_PS close to theta_PO), the endpoint on that side is too close, and its r is that of
    all directions together: the interval is then somewhat conservative. PR and theta_PO are the problem's.
    """
    good = np.all(np.isfinite(spread.center), axis=1)
    with jax.enable_x64(True):
        land, origin = survey(problem, first)
        x = np.where(good[:, None], spread.center, origin)
        value, g, K = (np.asarray(part) for part in _expanded(land.everywhere, jnp.asarray(x)))
        least = _least_risk(problem, land, first)
    low, high = _range(g, K, np.where(good[:, None, None], spread.covariance, 0.0), spread, level)
    value = np.where(good, value, np.nan)
    slack = _ROUNDING * np.abs(value)
    risk = Interval(value, value + low - slack, value + high + slack)
    if least is None:
        return risk, None
    # No model costs less than the optimal one.
    ends = (np.where(good, np.maximum(end - least, 0.0), np.nan) for end in (value, risk.low, risk.high))
    return risk, Interval(*ends)


def _least_risk(problem: Problem, land: Landscape, first: Theta) -> float | None:
    """PR(theta_PO); None if no optimal point was found."""
    try:
        best = optimal_point(problem, start=first)
    except ValueError:
        return None
    return float(land.risks(land.flat(best)[None])[0])


@eqx.filter_jit
def _expanded(land: Landscape, points: Float[Array, "R d"]) -> tuple[Array, Array, Array]:
    """PR with gradient and curvature, with settled worlds following the model."""

    def risk(x: Array) -> Array:
        return risk_of(land, x, x)

    def one(x: Array) -> tuple[Array, Array, Array]:
        return *jax.value_and_grad(risk)(x), jax.hessian(risk)(x)

    return jax.lax.map(one, points)


def _range(
    g: np.ndarray, K: np.ndarray, covariance: np.ndarray, spread: Spread, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """The minimum and maximum of g.e + e.K e / 2 over the region, each [repeats]."""
    values, vectors = np.linalg.eigh((covariance + np.swapaxes(covariance, 1, 2)) / 2)
    root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    slope = np.einsum("rkj,rk->rj", root, g)
    bend = np.swapaxes(root, 1, 2) @ K @ root
    curvatures, axes = np.linalg.eigh((bend + np.swapaxes(bend, 1, 2)) / 2)
    slope = np.einsum("rkj,rk->rj", axes, slope)
    one, all_of_them = spread.reach(level), spread.reach(level, g.shape[1])

    def radius(up: np.ndarray) -> np.ndarray:
        """The radius for the endpoint at which PR turns around, if the region may contain that point."""
        return np.where(up.max(axis=1) * all_of_them > np.linalg.norm(slope, axis=1), all_of_them, one)

    down = -slope[:, ::-1], -curvatures[:, ::-1]  # the lowest curvature first
    return _least(slope, curvatures, radius(curvatures)), -_least(*down, radius(down[1]))


def _least(slope: np.ndarray, curvatures: np.ndarray, radius: np.ndarray) -> np.ndarray:
    """min of slope.v + sum_j curvatures_j v_j^2 / 2 over |v| <= radius, [repeats]; the lowest curvature first.

    v = -slope / (curvatures + m), m >= 0 the least such that all are positive and |v| <= radius: bisected.
    """
    floor = np.maximum(-curvatures.min(axis=1), 0.0)
    size = np.linalg.norm(slope, axis=1) / np.maximum(radius, 1e-300) + np.abs(curvatures).max(axis=1) + 1e-300
    low, high = floor, floor + 2 * size
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        far = np.linalg.norm(slope / np.maximum(curvatures + middle[:, None], 1e-300), axis=1) > radius
        low, high = np.where(far, middle, low), np.where(far, high, middle)
    inside = np.all(curvatures > 0, axis=1)
    inside &= np.linalg.norm(slope / np.where(curvatures > 0, curvatures, 1.0), axis=1) <= radius
    m = np.where(inside, 0.0, high)
    v = -slope / np.maximum(curvatures + m[:, None], 1e-300)
    # If the slope has no component along the lowest curvature, the rest of the radius is spent there.
    rest = np.sqrt(np.maximum(radius**2 - np.sum(v**2, axis=1), 0.0))
    v[:, 0] += np.where(inside | (curvatures[:, 0] >= 0), 0.0, np.where(v[:, 0] < 0, -rest, rest)) * (
        np.abs(v[:, 0]) < 1e-9 * radius
    )
    return np.sum(slope * v + curvatures * v**2 / 2, axis=1)

"""Conditions of exploration for simulated people: noise and deployed losses of a `Problem`."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from performative._base.client_axis import client_axes
from performative._base.run_once import quickly_compiled
from performative._engine.risk import NODES, client_risks
from performative.certify.client_data import as_row
from performative.design.conditions import Conditions
from performative.problem import Problem
from performative.solve import stable_point
from performative.solve.landscape import Landscape, survey
from performative.types import Scene, Theta


def conditions_of(problem: Problem, rows: Any = 100, theta: Theta = None) -> Conditions:
    """Compute the noise and the curvature of the deployed loss at theta.

        spread_ij = sd of column j under D_i(theta),      curvature_ik = d^2 / d theta_k^2  E_{D_i(theta)} l(theta; Z)

    Args:
        rows: rows per client and deployment: a number, or one per client
        theta: the currently deployed model; None for the stable point, where retraining has settled
    """
    theta = stable_point(problem) if theta is None else theta
    with jax.enable_x64(True):
        land, x = survey(problem, theta)
        variance, curvature = (np.asarray(part) for part in _at(land, jnp.asarray(x)))

    def losses(models: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            return np.asarray(_losses(land, jnp.asarray(models)))

    return Conditions(
        np.sqrt(variance), np.asarray(rows), x, None, curvature, np.asarray(problem.client_weights, np.float64),
        losses=losses,
    )  # fmt: skip


@quickly_compiled
def _at(land: Landscape, x: Float[Array, " d"]) -> tuple[Float[Array, "N q"], Float[Array, "N d"]]:
    """Variances of the columns, and second derivatives of the deployed losses along the axes."""
    arrays, rest = eqx.partition(land.problem.population, eqx.is_array)
    theta = land.model(x)

    def variance(mine: PyTree) -> Array:
        population = eqx.combine(mine, rest)
        world = population.settle(Scene(theta, land.problem.loss))
        noise, share = population.quadrature_within(world, theta, NODES)
        rows = jax.vmap(lambda u: as_row(population.sample(u, world, theta)))(noise)
        weight = share.astype(rows.dtype)[:, None]
        mean = jnp.sum(weight * rows, axis=0)
        return jnp.sum(weight * (rows - mean) ** 2, axis=0)

    def second(direction: Array) -> Array:
        def slope(at: Array) -> Array:
            return jax.jvp(lambda y: _risks(land, y), (at,), (direction,))[1]

        return jax.jvp(slope, (x,), (direction,))[1]

    spread = jax.vmap(variance, in_axes=(client_axes(arrays),), axis_size=land.problem.clients)(arrays)
    return spread, jax.lax.map(second, jnp.eye(len(x), dtype=x.dtype)).T


def _risks(land: Landscape, x: Array) -> Float[Array, " N"]:
    return client_risks(land.problem, land.model(x), land.model(x))


@quickly_compiled
def _losses(land: Landscape, models: Float[Array, "m d"]) -> Float[Array, "m N"]:
    return jax.lax.map(lambda x: _risks(land, x), models)

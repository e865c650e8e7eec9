"""Expected losses: what the learner believes (decoupled) and what it gets (performative)."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from performative.client_axis import client_axes
from performative.problem import Problem
from performative.types import Theta, World

# Draws a client where an expectation has no exact rule.
NODES = 2048


def client_risks(
    problem: Problem, theta: Theta, deployed: Theta, world: World = None, nodes: int = NODES
) -> Float[Array, " N"]:
    """f_i(theta; deployed) = E_{Z ~ D_i(deployed)} l(theta; Z), for each client.

    Exact over finite tables and for Gaussian data in one dimension; else over fixed draws (common random numbers).
    `world` holds the clients' worlds; None lets each settle under `deployed`.
    """
    arrays, rest = eqx.partition(problem.population, eqx.is_array)

    def one(rows: Any, world: Any) -> Array:
        population = eqx.combine(rows, rest)
        here = population.settle(deployed, problem.loss) if world is None else world
        noise, share = population.nodes(deployed, nodes)
        each = jax.vmap(lambda u: problem.loss(theta, population.sample(u, here, deployed)))(noise)
        return jnp.sum(share.astype(each.dtype) * each)

    axes = (client_axes(arrays), None if world is None else 0)
    return jax.vmap(one, in_axes=axes, axis_size=problem.clients)(arrays, world)


def decoupled_risk(
    problem: Problem,
    weights: Float[Array, " N"],
    theta: Theta,
    deployed: Theta,
    world: World = None,
    nodes: int = NODES,
) -> Float[Array, ""]:
    """f(theta; deployed) = sum_i p_i f_i(theta; deployed). At deployed = theta it is the performative risk."""
    return jnp.sum(weights * client_risks(problem, theta, deployed, world, nodes))

"""Check before a run: does the learner's family capture the data's whole reaction?"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from performative._base.client_axis import take_clients
from performative.estimators.base import Problem
from performative.families import AbstractFamily
from performative.populations.base import AbstractPopulation, collect
from performative.types import Batch, Noise, Scene, Theta

_CLIENTS = 32  # only the first clients are checked
_PARTS, _ROWS = 16, 256  # batches, and samples of each
_ERRORS = 5.0  # standard errors: one false alarm in a million
_NUDGE = 0.1  # of a model's size, or of 1: how far the second model lies from the first


def _each_client(
    problem: Problem,
    function: Callable[[AbstractPopulation, Array], PyTree],
    run: Callable[[Callable[..., PyTree]], Callable[..., PyTree]] = jax.jit,
) -> PyTree:
    """function(population of one client, key) for the first clients."""
    count = min(problem.clients, _CLIENTS)
    arrays, rest = eqx.partition(problem.population, eqx.is_array)
    population = eqx.combine(jax.tree.map(jnp.asarray, arrays), rest)
    rows, axes = take_clients(population, jnp.arange(count, dtype=jnp.int32))
    arrays, rest = eqx.partition(rows, eqx.is_array)
    mapped = jax.vmap(lambda mine, key: function(eqx.combine(mine, rest), key), in_axes=(axes, 0), axis_size=count)
    return run(mapped)(arrays, jax.random.split(jax.random.key(0), count))


def late_part(problem: Problem, theta: Theta) -> float:
    """The fraction of the data's reaction to a new model that is still to come after one period; 0 without memory."""
    loss = problem.loss

    def one(population: AbstractPopulation, key: Array) -> tuple[Array, Array]:
        other = jax.tree.map(lambda leaf: leaf + _NUDGE * jnp.maximum(jnp.abs(leaf), 1), theta)
        start = population.settle(Scene(theta, loss))
        once, ever = population.deploy(start, Scene(other, loss)), population.settle(Scene(other, loss))
        start, once, ever = (ravel_pytree(eqx.filter(world, eqx.is_inexact_array))[0] for world in (start, once, ever))
        return jnp.sum(jnp.square(ever - once)), jnp.sum(jnp.square(ever - start))

    def shapes(mapped: Callable[..., PyTree]) -> Callable[..., PyTree]:
        return lambda *given: jax.eval_shape(mapped, *given)

    if not jax.tree.leaves(_each_client(problem, lambda population, key: population.init(Scene(theta, loss)), shapes)):
        return 0.0
    left, whole = (float(np.nansum(part)) for part in _each_client(problem, one))
    return float(np.sqrt(left / whole)) if whole > 0 else 0.0


def overlooked(
    problem: Problem, theta: Theta, family: AbstractFamily, answer: Callable[..., Float[Array, " m"]]
) -> tuple[float, bool]:
    """The relative error of (df/dtheta)^T s against the full derivative through the samples, and its significance.

    df/dtheta is that of f-hat under the population's own map, so a window that learns it could do no better.
    `answer(family, each, batch, f, theta, loss)` is the learner's s. For populations with smooth samples.
    """
    weights = np.asarray(problem.client_weights)[:_CLIENTS]
    loss = problem.loss

    def one(population: AbstractPopulation, key: Array) -> tuple[Float[Array, "b d"], Float[Array, "b d"]]:
        def moved(model: Theta, noise: Noise) -> Batch:
            return collect(population, noise, None, population.settle(Scene(model, loss)), model)

        def part(key: Array) -> tuple[Array, Array]:
            noise = population.draw(key, (_ROWS,), theta)
            batch = moved(theta, noise)
            fixed = jax.lax.stop_gradient(theta)
            each = jax.vmap(loss, in_axes=(None, 0))(fixed, batch.z)
            f = family.fit(batch)
            s = answer(family, each, batch, f, fixed, loss)
            seen = jax.grad(lambda model: jnp.nansum(family.fit(moved(model, noise)) * s))(theta)
            true = jax.grad(lambda model: jnp.mean(jax.vmap(loss, in_axes=(None, 0))(fixed, moved(model, noise).z)))(
                theta
            )
            return ravel_pytree(seen)[0], ravel_pytree(true)[0]

        return jax.vmap(part)(jax.random.split(key, _PARTS))

    seen, true = (np.asarray(value, np.float64) for value in _each_client(problem, one))
    gap = np.einsum("n,nbd->bd", weights, seen - true)
    mean, error = gap.mean(axis=0), np.linalg.norm(gap.std(axis=0, ddof=1)) / np.sqrt(_PARTS)
    size = float(weights @ np.linalg.norm(true.mean(axis=1), axis=1))
    far = float(np.linalg.norm(mean))
    return far / size if size > 0 else np.inf * (far > 0), bool(far > _ERRORS * error)

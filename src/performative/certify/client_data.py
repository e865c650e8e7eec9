"""One client's data under a model, as rows of numbers."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from performative._base.client_axis import slice_client
from performative.populations import AbstractPopulation
from performative.solve.landscape import Landscape
from performative.types import Scene, Theta


def sample_width(land: Landscape) -> int:
    """How many numbers one sample is."""

    def one() -> Array:
        return samples_under(land, slice_client(land.problem.population, 0), land.like, jax.random.key(0), 1)

    return jax.eval_shape(one).shape[1]


def samples_under(
    land: Landscape, population: AbstractPopulation, theta: Theta, key: Array, draws: int
) -> Float[Array, "n k"]:
    """One client's data under theta, once its world has settled."""
    world = population.settle(Scene(theta, land.problem.loss))
    noise = population.draw(key, (draws,), theta)
    return jax.vmap(lambda u: as_row(population.sample(u, world, theta)))(noise)


def mean_under(land: Landscape, population: AbstractPopulation, theta: Theta, nodes: int) -> Float[Array, " k"]:
    """The mean of one client's data under theta; unlike a sample it is smooth when theta moves probabilities."""
    world = population.settle(Scene(theta, land.problem.loss))
    noise, share = population.quadrature_within(world, theta, nodes)
    rows = jax.vmap(lambda u: as_row(population.sample(u, world, theta)))(noise)
    return jnp.sum(share.astype(rows.dtype)[:, None] * rows, axis=0)


def as_row(z: PyTree) -> Float[Array, " k"]:
    """A sample as numbers, labels included."""
    return jnp.concatenate([jnp.ravel(leaf).astype(jnp.float64) for leaf in jax.tree.leaves(z)])

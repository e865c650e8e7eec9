"""One client's data under a model, as rows of numbers."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from performative._base.client_axis import client_axes
from performative.populations import AbstractPopulation
from performative.solve.landscape import Landscape
from performative.types import Theta


def split_clients(population: AbstractPopulation) -> tuple[PyTree, PyTree]:
    """What differs between clients (leading axis N), and what they share: `eqx.combine` a row with the latter."""
    arrays, rest = eqx.partition(population, eqx.is_array)
    axes = client_axes(arrays)
    rows = jax.tree.map(lambda axis, leaf: None if axis is None else leaf, axes, arrays, is_leaf=_is_none)
    shared = jax.tree.map(lambda axis, leaf: leaf if axis is None else None, axes, arrays, is_leaf=_is_none)
    return rows, eqx.combine(shared, rest)


def first_client(population: AbstractPopulation) -> Any:
    """The first client's slice of a population."""
    rows, shared = split_clients(population)
    return eqx.combine(jax.tree.map(lambda leaf: leaf[0], rows), shared)


def sample_width(land: Landscape) -> int:
    """How many numbers one sample is."""

    def one() -> Array:
        return samples_under(land, first_client(land.problem.population), land.like, jax.random.key(0), 1)

    return jax.eval_shape(one).shape[1]


def samples_under(
    land: Landscape, population: AbstractPopulation, theta: Theta, key: Array, draws: int
) -> Float[Array, "n k"]:
    """One client's data under theta, once its world has settled."""
    world = population.settle(theta, land.problem.loss)
    noise = population.draw(key, (draws,), theta)
    return jax.vmap(lambda u: as_row(population.sample(u, world, theta)))(noise)


def mean_under(land: Landscape, population: AbstractPopulation, theta: Theta, nodes: int) -> Float[Array, " k"]:
    """The mean of one client's data under theta; unlike a sample it is smooth where theta moves chances."""
    world = population.settle(theta, land.problem.loss)
    noise, share = population.quadrature_within(world, theta, nodes)
    rows = jax.vmap(lambda u: as_row(population.sample(u, world, theta)))(noise)
    return jnp.sum(share.astype(rows.dtype)[:, None] * rows, axis=0)


def as_row(z: PyTree) -> Float[Array, " k"]:
    """A sample as numbers, labels too."""
    return jnp.concatenate([jnp.ravel(leaf).astype(jnp.float64) for leaf in jax.tree.leaves(z)])


def as_model(land: Landscape, vector: Float[Array, " d"]) -> Any:
    """A vector as a model."""
    return ravel_pytree(land.like)[1](vector)


def _is_none(leaf: PyTree) -> bool:
    return leaf is None

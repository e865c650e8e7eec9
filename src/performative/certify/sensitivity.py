"""Sensitivities eps_i: how far do a client's data move between two models?"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from performative._base.client_axis import split_clients
from performative.certify.client_data import mean_under, sample_width, samples_under
from performative.certify.transport import paired_distance
from performative.solve.landscape import Landscape

# Total draws over all clients, and numbers held in memory at once (32 MB; sorting needs a few times as much).
_DRAWS = 1 << 21
_NUMBERS = 1 << 22
_NODES = 256
_POWER_STEPS = 8
# How far apart neighboring models lie, as a fraction of the radius. If theta moves probabilities rather than samples,
# few draws differ between nearby models, so these are further apart.
_NEAR, _NEAR_JUMPING = 1 / 16, 1 / 2


@dataclasses.dataclass(frozen=True, eq=False)
class Sensitivity:
    """eps_i with limits, each [N].

    `draws` per client, and `pairs` of models compared: both 0 if eps_i is known for all models.
    """

    value: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    draws: int = 0
    pairs: int = 0

    @property
    def exact(self) -> bool:
        return self.pairs == 0


def estimate_sensitivity(
    land: Landscape, around: list[np.ndarray], apart: list[np.ndarray], radius: float, samples: int, seed: int
) -> Sensitivity:
    """W_1(D_i(theta), D_i(theta')) / |theta - theta'|, the largest over pairs of models.

    Args:
        around: each of these with its neighbor, along the direction in which the client's own mean moves most there
            (found by autodiff); the first is the center
        apart: each of these with the center

    Both models of a pair use common random numbers; for the limits see `paired_distance`. They cover the largest ratio
    over the pairs compared, not over all models. Worlds with memory have settled; labels count as numbers.
    """
    clients = land.problem.clients
    draws = int(np.clip(_DRAWS // clients, min(samples, 256), samples))
    block = int(np.clip(_NUMBERS // (draws * (sample_width(land) + 4)), 1, clients))
    near = radius * (_NEAR if land.problem.population.smooth else _NEAR_JUMPING)
    rows, shared = split_clients(land.problem.population)
    keys = jax.random.split(jax.random.key(seed), clients)
    pairs = len(around) + len(apart)
    found = np.zeros((3, clients))
    for first in range(0, clients, block):
        # Pad the last block with the last client: another length would trigger a recompilation.
        ids = np.minimum(np.arange(first, first + block), clients - 1)
        some = jax.tree.map(lambda leaf, ids=ids: leaf[ids], rows)
        best = np.zeros((3, block))
        for here, there in _pairs(land, some, shared, keys[ids], around, apart, near):
            gap = np.linalg.norm(there - here, axis=1)
            # A pair that the domain projects to one point is uninformative.
            scale = np.where(gap > 0, 1.0 / np.where(gap > 0, gap, 1.0), 0.0)
            a, b = (_sample(land, some, shared, keys[ids], jnp.asarray(x), draws) for x in (here, there))
            best = np.maximum(best, scale * np.stack(paired_distance(np.asarray(a), np.asarray(b), pairs)))
        found[:, ids] = best
    return Sensitivity(found[0], found[1], found[2], draws, pairs)


def _pairs(
    land: Landscape,
    some: PyTree,
    shared: PyTree,
    keys: PyTree,
    around: list[np.ndarray],
    apart: list[np.ndarray],
    near: float,
) -> Any:
    """Yield two models per client, [B, d] each, for each pair."""
    ones = np.ones((len(keys), 1))
    for x in apart:
        yield ones * around[0], ones * x
    for x in around:
        way = near / 2 * np.asarray(_steepest(land, some, shared, keys, jnp.asarray(x)))
        yield _project(land, x - way), _project(land, x + way)


@eqx.filter_jit
def _sample(
    land: Landscape, some: PyTree, shared: PyTree, keys: PyTree, thetas: Float[Array, "B d"], draws: int
) -> Array:
    """Each client's data under its model, [B, n, k]."""

    def one(mine: PyTree, key: Array, theta: Array) -> Array:
        return samples_under(land, eqx.combine(mine, shared), land.model(theta), key, draws)

    return jax.vmap(one)(some, keys, thetas)


def _steepest(land: Landscape, some: PyTree, shared: PyTree, keys: PyTree, x: Float[Array, " d"]) -> Array:
    """The unit direction of theta in which the mean of each client's data moves most, [B, d]."""
    return jnp.ones((len(keys), 1)) if len(x) == 1 else _power_iteration(land, some, shared, keys, x)


@eqx.filter_jit
def _power_iteration(land: Landscape, some: PyTree, shared: PyTree, keys: PyTree, x: Float[Array, " d"]) -> Array:
    def one(mine: PyTree, key: Array) -> Array:
        population = eqx.combine(mine, shared)

        def mean(theta: Array) -> Array:
            return mean_under(land, population, land.model(theta), _NODES)

        back = jax.vjp(mean, x)[1]

        def step(_: PyTree, v: Array) -> Array:
            (moved,) = back(jax.jvp(mean, (x,), (v,))[1])
            norm = jnp.linalg.norm(moved)
            # If the mean does not move, the direction is random.
            return jnp.where(norm > 0, moved / jnp.where(norm > 0, norm, 1), v)

        v = jax.random.normal(jax.random.fold_in(key, 1), x.shape, x.dtype)
        return jax.lax.fori_loop(0, _POWER_STEPS, step, v / jnp.linalg.norm(v))

    return jax.vmap(one)(some, keys)


def _project(land: Landscape, thetas: np.ndarray) -> np.ndarray:
    return thetas if land.domain is None else np.asarray(_project_each(land, jnp.asarray(thetas)))


@eqx.filter_jit
def _project_each(land: Landscape, thetas: Float[Array, "B d"]) -> Array:
    domain: Any = land.domain
    return jax.vmap(lambda v: ravel_pytree(domain.project(land.model(v)))[0])(thetas)

"""All clients' data in one place."""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from performative._base.client_axis import client_axes, take_clients
from performative.facts import declared
from performative.populations.base import AbstractPopulation
from performative.populations.linear import Translation
from performative.populations.wrappers import AbstractWrapper
from performative.types import ArrayLike, Loss, Noise, Numbers, RowNumbers, Sample, Scene, Theta, number


class Pooled(AbstractWrapper[PyTree]):
    """One client whose samples come from all of `inner`'s clients, from client i with probability `weights`_i.

        Z ~ sum_i p_i D_i(theta)

    What a central learner sees. Points and risks are those of the federation; only the assignment of people to clients
    is lost.
    """

    exact_family = False

    inner: AbstractPopulation = eqx.field(metadata={"per_client": False})
    weights: Numbers = number()

    @property
    def capacity(self) -> None:
        """None: row numbers of one client's table do not index the samples of all."""
        return None

    @property
    def rows(self) -> None:
        return None

    def translations(self) -> list[Translation] | None:
        inside = declared(self.inner, "translations")
        if inside is None:
            return None
        p = np.asarray(self.weights, np.float64)
        return [
            Translation(p[i : i + 1] * own[i], follows[i : i + 1]) for own, follows in inside for i in range(len(p))
        ]

    def init(self, scene: Scene) -> PyTree:
        return self._each(lambda mine: mine.init(scene))

    def deploy(self, world: PyTree, scene: Scene) -> PyTree:
        return self._each(lambda mine, world: mine.deploy(world, scene), world)

    def settle(self, scene: Scene) -> PyTree:
        return self._each(lambda mine: mine.settle(scene))

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...], theta: Theta, rows: RowNumbers | None = None) -> Noise:
        size = math.prod(shape)
        key_who, key_what = jax.random.split(key)
        edges = jnp.cumsum(self.weights)
        spot = jax.random.uniform(key_who, (size,), edges.dtype) * edges[-1]
        who = jnp.sum(spot[:, None] >= edges[:-1], axis=1, dtype=jnp.int32)

        def one(key: PRNGKeyArray, client: Array) -> Noise:
            return self._client(client).draw(key, (), theta)

        drawn = who, jax.vmap(one)(jax.random.split(key_what, size), who)
        return jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), drawn)

    def sample(self, noise: Noise, world: PyTree, theta: Theta) -> Sample:
        who, inside = noise
        return self._client(who).sample(inside, _row(world, who), theta)

    def group(self, noise: Noise, world: PyTree, theta: Theta) -> Int[Array, ""] | None:
        who, inside = noise
        return self._client(who).group(inside, _row(world, who), theta)

    def quadrature(self, theta: Theta, count: int) -> tuple[Noise, Array]:
        return self._nodes(self._each(lambda mine: mine.quadrature(theta, count)))

    def quadrature_within(self, world: PyTree, theta: Theta, count: int) -> tuple[Noise, Array]:
        return self._nodes(self._each(lambda mine, world: mine.quadrature_within(world, theta, count), world))

    def stable_point(self, loss: Loss, weights: ArrayLike) -> Theta | None:
        return self.inner.stable_point(loss, self.weights)

    def optimal_point(self, loss: Loss, weights: ArrayLike) -> Theta | None:
        return self.inner.optimal_point(loss, self.weights)

    def _client(self, client: Array) -> AbstractPopulation:
        return take_clients(self.inner, client)[0]

    def _each(self, function: Callable[..., PyTree], *worlds: PyTree) -> PyTree:
        """function(client's population, client's world) for every client, results with a leading axis of clients."""
        arrays, rest = eqx.partition(self.inner, eqx.is_array)
        lead = (client_axes(arrays), *(0 for _ in worlds))
        return jax.vmap(
            lambda rows, *mine: function(eqx.combine(rows, rest), *mine), in_axes=lead, axis_size=self.inner.clients
        )(arrays, *worlds)

    def _nodes(self, each: tuple[Noise, Array]) -> tuple[Noise, Array]:
        noise, share = each
        clients, count = share.shape
        who = jnp.repeat(jnp.arange(clients, dtype=jnp.int32), count)
        flat = jax.tree.map(lambda leaf: leaf.reshape(clients * count, *leaf.shape[2:]), noise)
        return (who, flat), (self.weights[:, None] * share.astype(self.weights.dtype)).reshape(-1)


def _row(world: PyTree, client: Array) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[client], world)

"""One model per group of clients: given, or learned."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from performative._base.checks import check_finite
from performative.sharing.base import AbstractSharing, Measure
from performative.types import ArrayLike, Theta, Unchecked, as_whole


def _stack(theta: Theta, count: int) -> Any:
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))), theta)


def _embed(delta: Theta, group: Array, share: Array, count: int) -> Any:
    """The update of one group's model as an update of all of them, divided by the group's share of all clients."""
    here = jnp.arange(count, dtype=group.dtype) == group

    def put(leaf: Array) -> Array:
        return jnp.where(here.reshape(-1, *(1,) * leaf.ndim), leaf / share.astype(leaf.dtype), 0)

    return jax.tree.map(put, delta)


class Groups(AbstractSharing):
    """One model per group; `group` is the group index 0, 1, ... of each client. theta has a leading axis of groups.

        theta_g <- theta_g + sum_{i in g} (a_i / P_g) delta_i,      P_g = sum_{i in g} p_i

    Group g starts at theta + apart_g: `apart`, like theta with a leading axis of groups, is zero by default.
    """

    references = ()
    ignores_data = True
    has_shared = False

    group: Unchecked[Any]
    count: int = eqx.field(static=True)
    share: Any = None
    apart: Unchecked[Any] = None

    def __init__(self, group: ArrayLike, share: Any = None, apart: Unchecked[Any] = None):
        self.group, self.share, self.apart = np.asarray(group), share, apart
        if self.group.ndim != 1 or self.group.dtype.kind not in "iu" or np.any(self.group < 0):
            raise ValueError(f"Groups: group must contain one number 0, 1, ... per client; got {group!r}.")
        self.count = int(self.group.max(initial=-1)) + 1
        empty = np.setdiff1d(np.arange(self.count), self.group)
        if len(empty) or not self.count:
            said = f"{empty.tolist()} has none" if len(empty) else "group is empty"
            raise ValueError(f"Groups: every group needs a client; {said}.")
        for leaf in jax.tree.leaves(apart):
            check_finite("Groups", apart=leaf)
            if np.shape(leaf)[:1] != (self.count,):
                raise ValueError(
                    f"Groups: apart must have a leading axis of {self.count} groups; got shape {np.shape(leaf)}."
                )

    def ready(self, weights: np.ndarray) -> "Groups":
        if len(self.group) != len(weights):
            raise ValueError(
                f"Groups: group has {len(self.group)} entries for {len(weights)} clients; pass one per client."
            )
        return Groups(self.group, np.bincount(self.group, weights), self.apart)

    def start(self, theta: Theta) -> PyTree:
        models = _stack(theta, self.count)
        if self.apart is None:
            return models
        return jax.tree.map(lambda leaf, more: leaf + jnp.asarray(more, leaf.dtype), models, self.apart)

    def one(self, shared: PyTree) -> Theta:
        return jax.tree.map(lambda leaf: leaf[0], shared)

    def local(self, shared: PyTree, own: None, client: Int[Array, ""] | None) -> Theta:
        mine = jnp.asarray(self.group, jnp.int32)[client]
        return jax.tree.map(lambda leaf: leaf[mine], shared)

    def models(self, shared: PyTree, own: None, clients: Int[Array, " N"]) -> PyTree:
        return shared

    def player(self, client: Int[Array, ""]) -> Int[Array, ""]:
        return jnp.asarray(self.group, jnp.int32)[client]

    def each_shared(self, function: Callable[[Theta], Theta], shared: PyTree) -> PyTree:
        return jax.vmap(function)(shared)

    def send(self, moved: Theta, shared: PyTree, own: None, client: Int[Array, ""] | None) -> PyTree:
        mine = jnp.asarray(self.group, jnp.int32)[client]
        return _embed(moved, mine, jnp.asarray(self.share)[mine], self.count)


class LearnedGroups(AbstractSharing):
    """In each round, participating clients join the group whose model has the smallest loss on their data.

        g_i = argmin_g f_i(theta_g; current data),      theta_g <- theta_g + sum_{g_i = g} a_i delta_i

    The groups' models start with normal perturbations of scale `spread`, to break symmetry. Ghosh et al. 2020.
    """

    references = ("ghosh2020efficient",)
    has_shared = False

    count: int = eqx.field(static=True, converter=as_whole)
    spread: Any = 0.1
    seed: int = eqx.field(static=True, converter=as_whole, default=0)

    def __check_init__(self) -> None:
        if not (isinstance(self.count, int) and self.count >= 1):
            raise ValueError(f"LearnedGroups: count must be a whole number of groups, at least 1; got {self.count!r}.")
        check_finite("LearnedGroups", spread=self.spread)

    def start(self, theta: Theta) -> PyTree:
        leaves, structure = jax.tree.flatten(_stack(theta, self.count))
        keys = jax.random.split(jax.random.key(self.seed), len(leaves))
        apart = [
            leaf + self.spread * jax.random.normal(key, leaf.shape, leaf.dtype)
            for key, leaf in zip(keys, leaves, strict=True)
        ]
        return jax.tree.unflatten(structure, apart)

    def one(self, shared: PyTree) -> Theta:
        return jax.tree.map(lambda leaf: leaf[0], shared)

    def keep(self, theta: Theta) -> Array:
        return jnp.zeros((), jnp.int32)

    def choose(self, shared: PyTree, own: Array, client: Int[Array, ""] | None, measure: Measure) -> Array:
        return jnp.argmin(jax.vmap(measure)(shared)).astype(jnp.int32)

    def local(self, shared: PyTree, own: Array, client: Int[Array, ""] | None) -> Theta:
        return jax.tree.map(lambda leaf: leaf[own], shared)

    def each_shared(self, function: Callable[[Theta], Theta], shared: PyTree) -> PyTree:
        return jax.vmap(function)(shared)

    def send(self, moved: Theta, shared: PyTree, own: Array, client: Int[Array, ""] | None) -> PyTree:
        return _embed(moved, own, jnp.ones(()), self.count)

"""Models of different sizes: clients that train a part of the shared one."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from performative._base.checks import is_one_of
from performative.sharing.base import AbstractSharing, Tally
from performative.types import (
    Cohort,
    Loss,
    Sample,
    Theta,
)


def _masked(mask: PyTree, tree: PyTree) -> Any:
    return jax.tree.map(lambda mine, leaf: jnp.where(mine, leaf, jnp.zeros_like(leaf)), mask, tree)


class _Carried(AbstractSharing):
    """What one client has in one round: the shared model where `mask` is True, zeros elsewhere."""

    mask: PyTree

    def local(self, shared: Theta, own: None, client: Int[Array, ""] | None) -> Theta:
        return _masked(self.mask, shared)

    def loss(self, loss: Loss) -> Loss:
        def part(local: Theta, z: Sample) -> Array:
            return loss(_masked(self.mask, local), z)

        return part

    def pull(self, local: Theta, shared: Theta, rate: Array) -> Theta:
        return _masked(self.mask, local)  # the mask applies to noise and momentum too

    def each(self, function: Callable[[Theta], Theta], local: Theta) -> Theta:
        return _masked(self.mask, function(local))

    def send(self, moved: Theta, shared: Theta, own: None, client: Int[Array, ""] | None) -> Theta:
        return _masked(self.mask, moved)


class AbstractPartial(AbstractSharing):
    """Client i carries the entries e with m_ie = 1; its people see these, and 0 in place of the others.

        weigh="mean"        theta_e <- theta_e + (sum_j a_j) sum_i a_i m_ie delta_ie / sum_i a_i m_ie
        weigh="unbiased"    theta_e <- theta_e + sum_i a_i m_ie delta_ie / (q_ie sum_{j: q_je > 0} p_j)

    The first is that of the papers: an entry moves by the mean over those of the cohort that carry it, and stays if
    none does. Clients that carry more count for more, since in some rounds only they train an entry. The second divides
    by the fraction q_ie of rounds in which client i carries entry e: over rounds and cohorts each entry moves by the
    weighted mean over all who ever train it, in rarer and larger steps (a window of 1/20 needs rates 20 times smaller).
    `history.trained` counts how often each entry was trained.
    """

    counts_entries = True
    if TYPE_CHECKING:  # a field of the subclasses; as an AbstractVar a checker would treat it as their first argument

        @property
        def weigh(self) -> str: ...

    @abstractmethod
    def mask(self, shared: Theta, client: Int[Array, ""], round: Int[Array, ""]) -> PyTree:
        """m_i in a round, a tree of booleans like theta."""

    @abstractmethod
    def chance(self, shared: Theta, client: Int[Array, ""]) -> PyTree:
        """q_i, the fraction of rounds in which the client carries each entry."""

    @abstractmethod
    def ever(self, theta: Theta) -> Iterator[tuple[str, np.ndarray]]:
        """For each leaf, its name and which entries are ever trained."""

    def of(self, shared: Theta, client: Int[Array, ""] | None, round: Int[Array, ""]) -> AbstractSharing:
        return self if client is None else _Carried(self.mask(shared, client, round))

    def tally(self, shared: Theta, weights: Float[Array, " N"]) -> Tally:
        trained = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.int32), shared)
        if self.weigh == "mean":
            return Tally(trained)

        def add(carried: PyTree, one: tuple[Array, Array]) -> tuple[PyTree, None]:
            client, p = one
            chance = self.chance(shared, client)
            return jax.tree.map(lambda sum, q: sum + jnp.where(q > 0, p, 0).astype(sum.dtype), carried, chance), None

        everyone = jnp.arange(weights.shape[0], dtype=jnp.int32), weights
        return Tally(trained, jax.lax.scan(add, jax.tree.map(jnp.zeros_like, shared), everyone)[0])

    def balance(
        self, sent: PyTree, shared: Theta, cohort: Cohort, round: Int[Array, ""], tally: Tally | None
    ) -> PyTree:
        masks, total = self._rows(shared, cohort, round), jnp.sum(cohort.weight)
        if self.weigh == "unbiased":
            assert tally is not None
            chances = jax.vmap(lambda client: self.chance(shared, client))(cohort.ids)

            def divide(mask: Array, rows: Array, chance: Array, carried: Array) -> Array:
                scale = jnp.where(mask, chance, 1).astype(rows.dtype) * carried.astype(rows.dtype)
                return jnp.where(mask, rows, 0) / jnp.where(mask, scale, 1)

            return jax.tree.map(divide, masks, sent, chances, tally.carried)

        def mean(mask: Array, rows: Array) -> Array:
            carried = jnp.tensordot(cohort.weight, mask.astype(cohort.weight.dtype), axes=1, precision="highest")
            factor = jnp.where(carried > 0, total / jnp.where(carried > 0, carried, 1), 0)
            return jnp.where(mask, rows, 0) * factor.astype(rows.dtype)

        return jax.tree.map(mean, masks, sent)

    def tallied(self, tally: Tally | None, shared: Theta, cohort: Cohort, round: Int[Array, ""]) -> Tally:
        assert tally is not None

        def add(so_far: Array, mask: Array) -> Array:
            here = cohort.present.reshape(-1, *(1,) * (mask.ndim - 1))
            return so_far + jnp.sum(mask & here, axis=0, dtype=so_far.dtype)

        return Tally(jax.tree.map(add, tally.trained, self._rows(shared, cohort, round)), tally.carried)

    def _rows(self, shared: Theta, cohort: Cohort, round: Int[Array, ""]) -> PyTree:
        return jax.vmap(lambda client: self.mask(shared, client, round))(cohort.ids)

    def check(self, theta: Theta) -> None:
        owner = type(self).__name__
        for name, trained in self.ever(theta):
            if not np.all(trained):
                index = [int(i) for i in np.argwhere(~trained)[0]]
                where = f"{name}{index}" if index else name
                raise ValueError(
                    f"{owner}: entry {where} of theta is trained by no client, in no round ({int(np.sum(~trained))} of "
                    f"{trained.size} entries of {name} are not). Give it to a client, or leave it out of the model."
                )


def read_weigh(owner: str, weigh: str) -> str:
    if not is_one_of(weigh, "mean", "unbiased"):
        raise ValueError(f'{owner}: weigh must be "mean" or "unbiased"; got {weigh!r}.')
    return weigh


def named_leaves(theta: Theta) -> list[tuple[str, Any]]:
    """Leaves with their names, "theta" if there is only one."""
    found = jax.tree_util.tree_leaves_with_path(theta)
    return [(jax.tree_util.keystr(path) or "theta", leaf) for path, leaf in found]

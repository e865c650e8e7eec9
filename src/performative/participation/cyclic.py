"""Groups of clients that take turns."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from performative._base.sampling import distinct, ways
from performative.participation.base import AbstractParticipation, Selection, check_draws
from performative.participation.law import (
    CohortMoments,
    Cohorts,
    certain_steps,
    empty_pairs,
    scaled_moments,
    subset_pairs,
    subsets,
)
from performative.types import ArrayLike, Cohort, Unchecked, as_whole, is_concrete

Groups = Unchecked[int | ArrayLike | Sequence[ArrayLike]]


class Cyclic(AbstractParticipation[None]):
    """Round r belongs to group g = r mod G; its weights are renormalized to one, as FedAvg does.

        a_i = p_i / P_g   for i in group g,      P_g = sum of p over the group

    Biased if the P_g differ: over a cycle all groups count equally, whatever their weight. As the step goes to zero,
    the squared loss on N(m_i + eps_i theta, .) converges to sum_g m_g / sum_g (1 - eps_g), with m_g and eps_g the
    groups' means, and not to the stable point. With equal P_g only the order within a cycle matters, and its effect
    vanishes with the step size.

    Args:
        groups: one list of client ids per group, or the group index of each client, or a count G (G groups of equal
            size, clients 0 to N/G - 1 first)
        k: how many of the group are drawn each time, every set equally likely; None for all. Then a_i = p_i / P_g *
            (size of the group) / k, the same in expectation, which sums to one only for equal p

    Smaller groups are padded. The cost is that of the largest group (of k), not of N. Cho, Sharma, Joshi, Xu, Kale and
    Zhang, ICML 2023.
    """

    references = ("cho2023cyclic",)
    ignores_data = True

    groups: Any
    k: int | None = eqx.field(static=True)
    count: int = eqx.field(static=True)
    largest: int | None = eqx.field(static=True)

    def __init__(self, groups: Groups, k: int | None = None):
        self.groups = _read_groups(groups)
        self.k = as_whole(k)
        if self.k is not None:
            check_draws("Cyclic", self.k)
        if self.groups.ndim == 0:
            self.count, self.largest = int(self.groups), None
        else:
            sizes = np.bincount(self.groups)
            self.count, self.largest = len(sizes), int(sizes.max())
            if self.k is not None and self.k > sizes.min():
                raise ValueError(
                    f"Cyclic: k={self.k} clients cannot be drawn from a group of {sizes.min()}; use a smaller k, "
                    "or None for all."
                )

    @property
    def sums_to_one(self) -> bool:
        return self.k is None

    def _rows(self, clients: int) -> int:
        """The size of the largest group."""
        return clients // self.count if self.largest is None else self.largest

    def size(self, clients: int) -> int:
        return self._rows(clients) if self.k is None else self.k

    def check(self, weights: np.ndarray) -> None:
        clients = len(weights)
        if self.largest is None and clients % self.count:
            raise ValueError(
                f"Cyclic: {clients} clients cannot form {self.count} groups of equal size; pass a list of ids for each."
            )
        if self.largest is None and self.k is not None and self.k > clients // self.count:
            raise ValueError(
                f"Cyclic: k={self.k} clients cannot be drawn from a group of {clients // self.count}; use a smaller "
                "k, or None for all."
            )
        if self.largest is not None and len(self.groups) != clients:
            raise ValueError(
                f"Cyclic: groups contains {len(self.groups)} clients, but there are {clients}; put each into exactly "
                "one group."
            )
        total = np.bincount(self._membership(clients), weights=np.asarray(weights, np.float64))
        if np.any(total <= 0):
            raise ValueError(
                f"Cyclic: the clients of group {int(np.argmin(total))} have total weight 0; leave that group out."
            )

    def _membership(self, clients: int) -> np.ndarray:
        """The group of each client."""
        if self.largest is None:
            return np.arange(clients) // (clients // self.count)
        return np.asarray(self.groups)

    def tables(self, weights: np.ndarray) -> PyTree:
        """Clients ordered by group, with their a_i; where each group begins, and its size."""
        member = self._membership(len(weights))
        order = np.argsort(member, kind="stable").astype(np.int32)
        total = np.bincount(member, weights=np.asarray(weights, np.float64))
        sizes = np.bincount(member).astype(np.int32)
        begins = (np.cumsum(sizes) - sizes).astype(np.int32)
        return order, (np.asarray(weights, np.float64) / total[member])[order], begins, sizes

    def cohort_moments(self, weights: np.ndarray, round: int) -> CohortMoments | None:
        turn = self._turn(weights, round)
        if turn is None:
            return None
        ids, k, scale = turn
        together = empty_pairs(len(weights))
        together[np.ix_(ids, ids)] = subset_pairs(len(ids), k)
        return scaled_moments(together, scale)

    def cohorts(self, weights: np.ndarray, round: int) -> Cohorts | None:
        turn = self._turn(weights, round)
        return None if turn is None else subsets(*turn)

    def cohort_count(self, weights: np.ndarray, round: int) -> float | None:
        turn = self._turn(weights, round)
        return None if turn is None else ways(len(turn[0]), turn[1])

    def _turn(self, weights: np.ndarray, round: int) -> tuple[np.ndarray, int, np.ndarray] | None:
        """The clients of the current group, how many are drawn, and a_i for those drawn."""
        if not is_concrete(self.groups):
            return None
        self.check(weights)
        p = np.asarray(weights, np.float64)
        ids = np.flatnonzero(self._membership(len(p)) == round % self.count)
        k = len(ids) if self.k is None else self.k
        return ids, k, p / p[ids].sum() * (len(ids) / k)

    def repeats_after(self, clients: int) -> int:
        return self.count

    def step_law(self, clients: int, default: int) -> np.ndarray:
        return certain_steps(clients, default)

    def select(self, key: PRNGKeyArray, selection: Selection, memory: None) -> tuple[Cohort, None]:
        order, share, begins, sizes = selection.tables
        clients = selection.weights.shape[0]
        largest, g = self._rows(clients), selection.round % self.count
        if self.k is not None:
            at = begins[g] + distinct(key, self.k, sizes[g], capacity=largest)
            return Cohort(order[at], share[at] * (sizes[g].astype(share.dtype) / self.k)), memory
        place = jnp.arange(largest, dtype=jnp.int32)
        at = jnp.minimum(begins[g] + place, clients - 1)
        if largest * self.count == clients:
            return Cohort(order[at], share[at]), memory
        here = place < sizes[g]
        return Cohort(jnp.where(here, order[at], clients), jnp.where(here, share[at], 0), here), memory


def _read_groups(given: Groups) -> np.ndarray:
    """A count as a 0-d array; lists of ids, or group indices, as the group index of each client."""
    rule = (
        "Cyclic: groups must be a whole number >= 1 of equal groups, one list of client ids for each group, or the "
        "group number of each client"
    )
    groups = as_whole(given)
    if isinstance(groups, int) and not isinstance(groups, bool) and groups >= 1:
        return np.asarray(groups, np.int32)  # an array, as for lists: a plain int would be a traced leaf
    listed = hasattr(groups, "__len__") and hasattr(groups, "__iter__") and getattr(groups, "ndim", 1) > 0
    if not listed or isinstance(groups, str) or len(groups) == 0:
        raise ValueError(f"{rule}; got {groups!r}.")
    if all(np.ndim(group) == 0 for group in groups):
        numbers = np.asarray(groups)
        if numbers.dtype.kind not in "iu" or numbers.min() < 0 or np.any(np.bincount(numbers) == 0):
            raise ValueError(f"{rule} (from 0 on, none left out); got {groups!r}.")
        return numbers.astype(np.int32)
    rows = [np.asarray(group) for group in groups]
    if any(row.ndim != 1 or row.size == 0 or row.dtype.kind not in "iu" for row in rows):
        raise ValueError(f"{rule}; an empty group, or ids that are not whole numbers, in {groups!r}.")
    ids = np.concatenate(rows)
    if not np.array_equal(np.sort(ids), np.arange(len(ids))):
        raise ValueError(
            f"Cyclic: groups must contain each client 0 to {len(ids) - 1} once, since {len(ids)} ids are given; got "
            f"{groups!r}."
        )
    member = np.empty(len(ids), np.int32)
    member[ids] = np.repeat(np.arange(len(rows)), [row.size for row in rows])
    return member

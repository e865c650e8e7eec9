"""Players who move in turn, or a few at a time."""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from performative._base.checks import check_flags
from performative._base.sampling import distinct, ways
from performative.participation.base import AbstractParticipation, Selection, check_draws
from performative.participation.law import (
    CohortMoments,
    Cohorts,
    certain_steps,
    check_clients,
    scaled_moments,
    subset_pairs,
    subsets,
)
from performative.types import ArrayLike, Cohort, Unchecked, as_array, as_whole, is_concrete


class Turns(AbstractParticipation[None]):
    """Each round belongs to k players: all of their clients take part, with their usual weights.

        a_i = p_i   for the clients i of the moving players

    In turn, players r k, ..., r k + k - 1 (mod G) move in round r; at random, every set of k is equally likely. A
    moving player takes its full step, unlike in `Cyclic` and `SchemeTwo`, which compensate for absent clients with
    larger weights. Use it with `sharing.Groups` and the same players; `pf.Game(play=...)` does so.

    Args:
        players: the player of each client, 0, 1, ...; or how many players there are, one client each
        k: how many move at a time
        random: draw them at random instead of in turn
    """

    references = ()
    ignores_data = True
    sums_to_one = False
    sums_to_one_if_equal = False

    players: Any
    k: int = eqx.field(static=True)
    random: bool = eqx.field(static=True)
    count: int = eqx.field(static=True)
    largest: int = eqx.field(static=True)

    def __init__(self, players: Unchecked[int | ArrayLike], k: int = 1, random: bool = False):
        self.players, self.k, self.random = read_players("Turns", players), as_whole(k), random
        check_draws("Turns", self.k)
        check_flags("Turns", random=self.random)
        sizes = np.bincount(self.players)
        self.count, self.largest = len(sizes), int(sizes.max())
        if self.k > self.count:
            raise ValueError(f"Turns: k={self.k} of {self.count} players cannot move at a time; use pf.Full() for all.")

    def size(self, clients: int) -> int:
        return self.k * self.largest

    def check(self, weights: np.ndarray) -> None:
        if len(self.players) != len(weights):
            raise ValueError(
                f"Turns: players has {len(self.players)} entries for {len(weights)} clients; pass one per client."
            )

    def tables(self, weights: np.ndarray) -> PyTree:
        """The clients of each player, [players, largest], padded with N."""
        places = np.full((self.count, self.largest), len(self.players), np.int32)
        for player in range(self.count):
            mine = np.flatnonzero(np.asarray(self.players) == player)
            places[player, : len(mine)] = mine
        return places

    def cohort_moments(self, weights: np.ndarray, round: int) -> CohortMoments | None:
        if not is_concrete(self.players):
            return None
        self.check(weights)
        check_clients(len(weights))
        player = np.asarray(self.players)
        if self.random:
            together = subset_pairs(self.count, self.k)
        else:
            moves = np.isin(np.arange(self.count), self._movers(round)).astype(np.float64)
            together = np.outer(moves, moves)
        return scaled_moments(together[np.ix_(player, player)], np.asarray(weights, np.float64))

    def cohorts(self, weights: np.ndarray, round: int) -> Cohorts | None:
        if not is_concrete(self.players):
            return None
        self.check(weights)
        p, player = np.asarray(weights, np.float64), np.asarray(self.players)
        among = np.arange(self.count) if self.random else self._movers(round)
        moved = ((chance, np.flatnonzero(np.isin(player, who))) for chance, who, _ in subsets(among, self.k, p))
        return ((chance, ids, p[ids]) for chance, ids in moved)

    def cohort_count(self, weights: np.ndarray, round: int) -> float:
        return ways(self.count, self.k) if self.random else 1.0

    def _movers(self, round: int) -> np.ndarray:
        """The players that move in this round, when they move in turn."""
        return (round % self.count * self.k + np.arange(self.k)) % self.count

    def repeats_after(self, clients: int) -> int:
        return 1 if self.random else self.count // math.gcd(self.count, self.k)

    def step_law(self, clients: int, default: int) -> np.ndarray:
        return certain_steps(clients, default)

    def select(self, key: PRNGKeyArray, selection: Selection, memory: None) -> tuple[Cohort, None]:
        if self.random:
            movers = distinct(key, self.k, self.count)
        else:
            movers = (selection.round % self.count * self.k + jnp.arange(self.k, dtype=jnp.int32)) % self.count
        ids = selection.tables[movers].reshape(-1)
        clients = selection.weights.shape[0]
        here = ids < clients
        weight = jnp.where(here, jnp.take(selection.weights, ids, mode="clip"), 0)
        return Cohort(ids, weight, None if self.k * self.largest * self.count == clients * self.k else here), memory


def read_players(owner: str, players: object) -> np.ndarray:
    """The player of each client, from such a list or from the number of players; raises otherwise."""
    number = as_whole(players)
    if isinstance(number, int) and not isinstance(number, bool) and number >= 1:
        return np.arange(number, dtype=np.int32)
    given: Any = players
    listed = as_array(given) if isinstance(given, (list, tuple, np.ndarray, range)) else np.zeros(())
    if listed.ndim != 1 or listed.size == 0 or listed.dtype.kind not in "iu" or np.any(listed < 0):
        raise ValueError(
            f"{owner}: players must be the number 0, 1, ... of each client's player, or how many players there are; "
            f"got {players!r}."
        )
    if len(empty := np.setdiff1d(np.arange(listed.max() + 1), listed)):
        raise ValueError(f"{owner}: every player needs a client; players {empty[:5].tolist()} have none.")
    return listed.astype(np.int32)

"""Several learners whose people see all models."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from performative._base.checks import check_counts, check_finite, is_one_of
from performative._base.client_axis import join_clients
from performative._base.describe import shown
from performative.algorithm import Algorithm
from performative.participation import AbstractParticipation, Turns
from performative.participation.turns import read_players
from performative.problem import Problem
from performative.sharing import AbstractSharing, Groups, PerClient
from performative.types import ArrayLike, Theta, Unchecked, as_whole

__all__ = ["Game"]


class Game(eqx.Module):
    """Players who each train their own model, on data that react to all of them.

        player g:   min over theta_g of  f_g(theta_g; theta) = sum_{i of g} w_i E_{Z ~ D_i(theta)} l(theta_g; Z),
        theta = (theta_1, ..., theta_G),   w_i = p_i / (sum of p over the clients of g)

    A player is one client, or a federation of clients that share a model. `pf.run(game, algorithm, rounds)` lets all
    players use the same algorithm; `history.theta` then has an axis of players, [repeats, records, players, ...].
    `pf.stable_point`, `pf.nash_point` and `pf.social_point` solve it; `pf.play_outlook` predicts whether play
    converges.

    Args:
        problems: one problem with all clients, or a list with one per player: with the same loss, domain and kind of
            population
        players: the player 0, 1, ... of each client of the one problem; None makes every client a player
        play: "simultaneous": all move in every round; "alternating": `movers` players in turn; "random": that many,
            drawn in each round (asynchronous play). The models of the others stay deployed
        movers: number of players that move in a round of alternating or random play
        start: initial models of the players, theta with a leading axis of players; None if all start from the `theta`
            of the run

    If data depend on other players' models, use a population that reads them: `pf.populations.Market`, or a `Mixture`
    by `shares.Logit`. Narang et al. 2023.
    """

    problem: Problem
    players: Any
    play: str = eqx.field(static=True)
    movers: int = eqx.field(static=True)
    start: Any

    def __init__(
        self,
        problems: Unchecked[Problem | Sequence[Problem]],
        players: Unchecked[ArrayLike | None] = None,
        play: str = "simultaneous",
        movers: int = 1,
        start: Unchecked[Any] = None,
    ):
        if isinstance(problems, Problem):
            self.problem = problems
            self.players = read_players("Game", problems.clients if players is None else players)
        else:
            self.problem, self.players = _joined(problems, players)
        self.play, self.movers = play, as_whole(movers)
        self.start = jax.tree.map(np.asarray, start)

    def __repr__(self) -> str:
        return shown(self)

    def __check_init__(self) -> None:
        clients, made_for = self.problem.clients, self.problem.population.player_count
        if len(self.players) != clients:
            raise ValueError(
                f"Game: players must name a player for each of the {clients} clients; got {len(self.players)} entries."
            )
        if made_for is not None and made_for != self.count:
            name = type(self.problem.population).__name__
            raise ValueError(f"Game: {name} is for {made_for} players, but the game has {self.count}.")
        if not is_one_of(self.play, "simultaneous", "alternating", "random"):
            raise ValueError(f'Game: play must be "simultaneous", "alternating" or "random"; got {self.play!r}.')
        check_counts(movers=self.movers)
        if self.movers > self.count:
            raise ValueError(
                f"Game: movers={self.movers} of {self.count} players cannot move at a time; use {self.count} or fewer."
            )
        self._check_start()
        if np.any(self.totals <= 0):
            raise ValueError(
                f"Game: the clients of player {int(np.argmin(self.totals))} have total weight 0; give them weight."
            )

    def _check_start(self) -> None:
        for leaf in jax.tree.leaves(self.start):
            check_finite("Game", start=leaf)
            if np.shape(leaf)[:1] != (self.count,):
                raise ValueError(
                    f"Game: start must have a leading axis of {self.count} players; got shape {np.shape(leaf)}."
                )
        domain = self.problem.domain
        if self.start is None or domain is None:
            return
        inside = jax.vmap(domain.project)(jax.tree.map(jnp.asarray, self.start))
        if not all(map(np.allclose, jax.tree.leaves(inside), jax.tree.leaves(self.start))):
            raise ValueError(f"Game: start must lie inside the domain {domain} for every player.")

    @property
    def count(self) -> int:
        """G, the number of players."""
        return int(np.max(self.players)) + 1

    @property
    def clients(self) -> int:
        """N."""
        return self.problem.clients

    @property
    def totals(self) -> np.ndarray:
        """P_g, the weight of each player's clients."""
        return np.bincount(self.players, np.asarray(self.problem.client_weights, np.float64))

    @property
    def client_weights(self) -> np.ndarray:
        """w_i, which sum to one over each player's clients."""
        return np.asarray(self.problem.client_weights, np.float64) / self.totals[self.players]

    def as_run(self, algorithm: Algorithm, theta: Theta = None) -> tuple[Problem, Algorithm, Theta]:
        """The problem, the algorithm and the start for `pf.run`."""
        played = self.played_by(algorithm)
        if self.start is None:
            return self.problem, played, theta
        if theta is not None:
            raise ValueError("theta with Game(start=...): the game sets where its players start; leave theta out.")
        sharing = played.sharing
        if not isinstance(sharing, Groups):
            raise ValueError(f"sharing={type(sharing).__name__} with Game(start=...): leave sharing out.")
        first = jax.tree.map(lambda leaf: leaf[0], self.start)
        apart = jax.tree.map(lambda leaf: leaf - leaf[:1], self.start)
        return self.problem, dataclasses.replace(played, sharing=Groups(sharing.group, apart=apart)), first

    def played_by(self, algorithm: Algorithm) -> Algorithm:
        """The algorithm as the players of this game use it: who shares a model, and who moves when."""
        if not isinstance(algorithm, Algorithm):
            raise ValueError(
                "algorithm must be a pf.Algorithm, as a recipe such as pf.p_fedavg(...) returns; "
                f"got {type(algorithm).__name__}."
            )
        sharing, alone = algorithm.sharing, self.count == self.clients
        if not sharing.is_one and not (isinstance(sharing, PerClient) and alone):
            also = ", or pf.sharing.PerClient() for models that stay with their clients" if alone else ""
            raise ValueError(
                f"sharing={type(sharing).__name__} in a game: the clients of a player share a model; leave sharing "
                f"out{also}."
            )
        chosen: AbstractSharing = Groups(self.players) if sharing.is_one else sharing
        return dataclasses.replace(algorithm, sharing=chosen, participation=self._turns(algorithm, chosen, alone))

    def _turns(self, algorithm: Algorithm, sharing: AbstractSharing, alone: bool) -> AbstractParticipation:
        given = algorithm.participation
        if self.play == "simultaneous":
            if alone and not given.is_full and isinstance(sharing, Groups):
                raise ValueError(
                    f"participation={type(given).__name__} in a game of one client per player: it compensates for "
                    'absent clients by larger steps of the others. Use pf.Game(..., play="random", movers=k).'
                )
            return given
        if not given.is_full or given.local_steps(algorithm.local_steps) != algorithm.local_steps:
            raise ValueError(
                f"participation={type(given).__name__} with play={self.play!r}: the game sets who takes part; leave "
                'participation out, or give play="simultaneous".'
            )
        return Turns(self.players, self.movers, random=self.play == "random")


def _joined(problems: Any, players: object) -> tuple[Problem, np.ndarray]:
    """One problem with all players' clients, and the player of each client."""
    listed = isinstance(problems, (list, tuple)) and len(problems) > 0
    if not listed or not all(isinstance(one, Problem) for one in problems):
        raise ValueError(f"Game: problems must be a pf.Problem, or a list with one for each player; got {problems!r}.")
    if players is not None:
        raise ValueError("Game: a list contains one problem per player; leave players out, or pass one problem.")
    first = problems[0]
    for name in ("loss", "domain"):
        for g, one in enumerate(problems):
            if not _equal(getattr(one, name), getattr(first, name)):
                raise ValueError(
                    f"Game: players need the same {name}; that of problems[{g}] differs from problems[0]'s."
                )
    try:
        population = join_clients([one.population for one in problems])
    except ValueError as error:
        raise ValueError(f"Game: the players' populations must be of the same kind: {error}") from None
    weights = np.concatenate([np.asarray(one.client_weights) for one in problems]) / len(problems)
    words = tuple(dict.fromkeys(word for one in problems for word in one.from_data))
    joined = Problem(first.loss, population, weights, first.domain, from_data=words)
    return joined, np.repeat(np.arange(len(problems), dtype=np.int32), [one.clients for one in problems])


def _equal(one: object, other: object) -> bool:
    return one is other or (type(one) is type(other) and bool(eqx.tree_equal(one, other)))

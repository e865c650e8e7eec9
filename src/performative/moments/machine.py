"""A problem and an algorithm as a machine that propagates means and covariances, built from the engine's own round."""

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from performative._base.messages import coded
from performative._engine.setup import Setup
from performative._engine.steps import client_slice
from performative.facts import Uncertified
from performative.moments.buffered import BufferedRound, Race
from performative.moments.client import PAIRS, OneClient, Rules, effect_map, multiplied, training_map
from performative.moments.facts import MOST_NUMBERS, Chances
from performative.moments.layout import Layout
from performative.moments.listed import Cohorts, ListedRound, closings
from performative.moments.probes import check_affine
from performative.moments.recursion import AbstractRound, Law, RoundMap
from performative.moments.shortened import shortened
from performative.types import Cohort, State

# Numbers of nodes' matrices held in memory at once.
_AT_ONCE = 1 << 23
# Relative deviation below which it is roundoff.
NOTHING = 1e-12
# Beyond this, roundoff hides the effect.
_FAR = 1e8


class Machine(eqx.Module):
    """Propagates the distribution of (1, s, R) from round to round.

    Args:
        first: the state at the start, with zeros in place of s and R; still: the non-random part of later states
        at: s and R around which rounds are linearized: arbitrary if they are affine
        chances: moments of cohorts and steps
        spread: variance of a batch's mean over that of one sample, [N]
        channel: what the channel draws, as nodes and weights
        drawn: a few cohorts for checks
        listed: every cohort of P rounds, if clients' effects do not add up
        race: for asynchronous clients, who comes first; R then contains what each of them started from
        period: the number of rounds after which everything repeats; nodes: the rule for samples; adds, moves: as in
            `Rules`
    """

    setup: Setup
    layout: Layout
    first: State
    still: list[Array]
    start: tuple[Array, Array]
    at: tuple[Array, Array]
    chances: Chances
    spread: Float[Array, " N"]
    channel: tuple[Any, Array]
    drawn: list[Cohort]
    listed: Cohorts | None
    period: int = eqx.field(static=True)
    nodes: int = eqx.field(static=True)
    adds: tuple[bool, bool] = eqx.field(static=True, default=(False, False))
    race: Race | None = None
    moves: bool = eqx.field(static=True, default=False)

    @property
    def rounds(self) -> int:
        """How many rounds it knows."""
        return len(self.still[0]) - 1

    @property
    def common(self) -> int:
        """C, the length of (1, s)."""
        return 1 + len(self.start[0])

    @property
    def size(self) -> int:
        """D, the length of (1, s, R)."""
        return self.common + self.start[1].size

    @property
    def ages(self) -> int:
        """How many ages of clients' models count."""
        return 1 if self.race is None else self.race.ages

    @property
    def room(self) -> int:
        """Space, in numbers, for each step of each client."""
        steps = self.ages * len(self.chances.work[0]) * self.setup.algorithm.steps
        return min(PAIRS, MOST_NUMBERS // (2 * self.layout.clients * steps))

    @property
    def rows(self) -> Float[Array, "N q"]:
        """What is remembered of clients where rounds are linearized."""
        return self.at[1][:, : self.layout.width]

    @property
    def time(self) -> tuple[int, ...]:
        """Places in (1, s, R) of simulated time, if it is random."""
        names = [name for name in self.names() if not name.startswith("client ")]
        return tuple(1 + k for k, name in enumerate(names) if name.startswith("time"))

    def numbers(self) -> int:
        """Approximate size, in numbers, of a round's map during construction."""
        rest, zero = self.rest(jnp.zeros((), jnp.int32)), jax.ShapeDtypeStruct((), jnp.int32)
        carried, nodes = jax.eval_shape(self._carried, rest, zero)
        c, y = self.common + self.layout.width, len(carried)
        g, o = c + y, y + self.layout.width + self.layout.model
        squares = (y * g) ** 2 if len(nodes) > y and (y * g) ** 2 <= self.room else 0
        deviation = y * y if self.adds[0] else max(y * g * len(nodes), squares)
        each = self.setup.algorithm.steps * (y * g + deviation) + 2 * c * (c + o) + o * (g + o)
        return self.ages * self.layout.clients * each * len(self.chances.work[0])

    def _carried(self, rest: State, client: Array) -> tuple[Array, Array]:
        """What a client's steps carry, and the weights of its nodes."""
        rules, s, R = self.rules(rest, client), self.at[0], self.rows
        run = OneClient(self.setup, self.layout, rest, R, client, None)
        return run.start(rules.sample(0), s, R[client])[0], rules.weight

    def around(self, x: np.ndarray) -> "Machine":
        """Linearized at (s, R) = x."""
        s = jnp.asarray(x[: self.common - 1])
        return dataclasses.replace(self, at=(s, jnp.asarray(x[self.common - 1 :]).reshape(self.start[1].shape)))

    def later(self, rounds: int) -> "Machine":
        """The machine with the numbers of later rounds, when steps are smaller."""
        leaves = jax.tree_util.tree_leaves_with_path(self.first)
        random = (*self.layout.shared, *self.layout.rows)
        names = [jax.tree_util.keystr(path) for k, (path, _) in enumerate(leaves) if k not in random]
        still = [leaf + rounds if name == ".round" else leaf for name, leaf in zip(names, self.still, strict=True)]
        return dataclasses.replace(self, still=still)

    def with_adds(self) -> "Machine":
        """The machine with `adds` and `moves` determined: additive noise takes far less memory than multiplicative."""
        samples, channel, moves = (bool(part > NOTHING) for part in np.asarray(_multiplied(self)))
        return dataclasses.replace(self, adds=(not samples, not channel), moves=moves)

    def begin(self) -> Law:
        """Everything is deterministic before the first round."""
        s, R = self.start
        x = jnp.concatenate([jnp.ones(1), s, R.ravel()])
        return Law(x, jnp.zeros((len(x), len(x))))

    def rest(self, round: Int[Array, ""]) -> State:
        """The state at the start of a round, without what is random."""
        leaves, structure = jax.tree.flatten(self.first)
        still = iter(jax.tree.map(lambda leaf: leaf[round], self.still))
        random = (*self.layout.shared, *self.layout.rows)
        return jax.tree.unflatten(structure, [leaf if k in random else next(still) for k, leaf in enumerate(leaves)])

    def rules(self, rest: State, client: Int[Array, ""]) -> Rules:
        """A client's randomness as nodes."""
        state, algorithm = self.layout.join(*self.at, rest), self.setup.algorithm
        population = client_slice(self.setup.problem.population, client)
        mine = jax.tree.map(lambda leaf: leaf[client], state.clients)
        sharing = algorithm.sharing.of(state.theta, client, state.round)
        met = sharing.meet(sharing.local(state.theta, mine.own, client))
        try:
            data, weight = population.quadrature_within(mine.world, met, self.nodes)
        except Uncertified as reason:
            raise ValueError(coded("not-affine", f"moments: {reason}.")) from None
        return Rules(
            data, weight.astype(jnp.float64), *self.channel, self.spread[client], self.adds, self.moves, self.nodes,
            self.room,
        )  # fmt: skip

    def round(self, round: Int[Array, ""]) -> AbstractRound:
        """What this round does."""
        rest, clients = self.rest(round), jnp.arange(self.layout.clients, dtype=jnp.int32)
        s0, R0, steps, C = self.at[0], self.rows, self.chances.steps, self.common
        k = round % len(self.chances.mean)

        def one(client: Array, steps: Array | None, rest: State) -> Any:
            run = OneClient(self.setup, self.layout, rest, R0, client, steps)
            made, form, sent = training_map(run, s0, R0[client], self.rules(rest, client))
            if self.listed is not None:
                return made, form, sent
            return made, *effect_map(run, s0, R0[client], sent, form)

        def of_client(client: Array, rest: State) -> Any:
            if steps is None:
                return jax.tree.map(lambda leaf: leaf[None], one(client, None, rest))
            return jax.vmap(lambda tau: one(client, tau, rest))(steps)

        if self.race is not None:
            began = jax.vmap(self.rest)(jnp.maximum(round - jnp.arange(self.ages, dtype=round.dtype), 0))
            made, effect, absent = jax.lax.map(
                lambda client: jax.vmap(partial(of_client, client))(began), clients, batch_size=self._at_once(rest)
            )
            through = effect[:, 0, 0, 1, :, C:]
            return BufferedRound(self.race, absent[0, 0, 0, :C, :C], made, through, self.chances.work)
        made, *rest_of = jax.lax.map(lambda client: of_client(client, rest), clients, batch_size=self._at_once(rest))
        if self.listed is not None:
            cohorts = jax.tree.map(lambda leaf: leaf[k], self.listed)
            closed = closings(self.setup, self.layout, rest, self.at, cohorts, steps, *rest_of)
            return ListedRound(made, cohorts, *closed, C, self.layout.width)
        effect, absent = rest_of
        covariance = None if self.chances.covariance is None else self.chances.covariance[k]
        whole = RoundMap(
            absent[0, 0, :C, :C], absent[:, 0, C:], made, effect, self.chances.work, self.chances.mean[k],
            self.chances.own[k], covariance,
        )  # fmt: skip
        return whole if self.layout.width else shortened(whole)

    def _at_once(self, rest: State) -> int:
        """Number of clients whose nodes are processed together."""
        rules = jax.eval_shape(self.rules, rest, jax.ShapeDtypeStruct((), jnp.int32))
        width = self.common + self.layout.width + self.layout.model
        numbers = self.ages * len(rules.weight) * width**2 * len(self.chances.work[0])
        return int(np.clip(_AT_ONCE // numbers, 1, self.layout.clients))

    def check_around(self, mean: np.ndarray, covariance: np.ndarray) -> None:
        """Raise if rounds are nonlinear in the range of the run, [rounds + 1, ...]: a clip may be, far out."""
        rng, last = np.random.default_rng(3), len(mean) - 1
        for r in {last // 2, last}:
            spread = np.sqrt(np.maximum(np.diagonal(covariance[r]), 0.0))[1:]
            x, y = (mean[r][1:] + 2.0 * spread * rng.standard_normal(len(spread)) for _ in range(2))
            if self.race is not None:
                x, y = x[: self.common - 1], y[: self.common - 1]
            if max(np.abs(x).max(), np.abs(y).max()) < _FAR:
                rest = self.rest(jnp.asarray(min(r, self.rounds)))
                check_affine(self.setup, self.layout, rest, self.drawn, x, y)

    def names(self) -> tuple[str, ...]:
        """What each number of (s, R) is."""
        leaves = jax.tree_util.tree_leaves_with_path(self.first)

        def told(k: int, rows: bool) -> list[str]:
            path, leaf = leaves[k]
            shape = leaf.shape[1:] if rows else leaf.shape
            return [jax.tree_util.keystr(path).lstrip(".") + str(list(at)) * bool(at) for at in np.ndindex(*shape)]

        shared = [name for k in self.layout.shared for name in told(k, False)]
        if self.race is not None:
            each = [f"{name}, begun {age} rounds ago" for age in range(self.ages) for name in ("at work", *shared)]
            return (*shared, *(f"client {i}: {name}" for i in range(self.layout.clients) for name in each))
        rows = [name for k in self.layout.rows for name in told(k, True)]
        return (*shared, *(f"client {i}: {name}" for i in range(self.layout.clients) for name in rows))


@eqx.filter_jit
def _multiplied(machine: Machine) -> Array:
    rest, s0, R0 = machine.rest(jnp.zeros((), jnp.int32)), machine.at[0], machine.rows
    tau = None if machine.chances.steps is None else machine.chances.steps[-1]

    def one(client: Array) -> Array:
        run = OneClient(machine.setup, machine.layout, rest, R0, client, tau)
        return multiplied(run, s0, R0[client], machine.rules(rest, client))

    return jnp.max(jax.lax.map(one, jnp.arange(machine.layout.clients, dtype=jnp.int32)), axis=0)

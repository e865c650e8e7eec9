"""A problem and an algorithm as a machine that moves means and covariances, made from the engine's own round."""

import dataclasses
import math
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from performative._base.messages import coded
from performative._base.run_once import quickly_compiled
from performative._engine.clock import Clock
from performative._engine.ready import make_ready
from performative._engine.risk import NODES
from performative._engine.setup import Setup
from performative._engine.steps import client_slice
from performative.algorithm import Algorithm
from performative.facts import Uncertified, declared
from performative.moments.buffered import BufferedRound, Race, check_added, check_race, read_race
from performative.moments.client import OneClient, Rules, effect_map, multiplied, training_map
from performative.moments.facts import (
    DEGREE,
    Chances,
    batch_spread,
    check_covered,
    check_numbers,
    check_rules,
    check_size,
    read_chances,
)
from performative.moments.layout import Layout, find_layout, follow
from performative.moments.listed import Cohorts, ListedRound, closings, list_all
from performative.moments.probes import check_affine, check_mean
from performative.moments.recursion import AbstractRound, Law, RoundMap
from performative.moments.shortened import shortened
from performative.populations.nodes import Polynomial
from performative.problem import Problem
from performative.record import Record
from performative.types import Cohort, State, Theta

# Numbers of nodes' matrices that are held at once.
_AT_ONCE = 1 << 23
# Of a deviation: less is rounding.
_NOTHING = 1e-12
# Beyond, rounding hides what is looked for.
_FAR = 1e8


class Machine(eqx.Module):
    """What moves the law of (1, s, R) from round to round.

    Args:
        first: the state at the start, with zeros in the place of s and R; still: what is not random of later ones
        at: s and R around which rounds are linearized: anywhere, where they are affine
        chances: moments of cohorts and steps
        spread: variance of a batch's mean over that of one sample, [N]
        channel: what the channel draws, as nodes and weights
        drawn: a few cohorts, to try things with
        listed: every cohort of P rounds, where clients do not add up
        race: of asynchronous clients, who comes first; R then holds what each of them began with
        period: after so many rounds all repeats; nodes: the rule for samples; adds: as in `Rules`
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
    def rows(self) -> Float[Array, "N q"]:
        """What is remembered of clients where rounds are linearized."""
        return self.at[1][:, : self.layout.width]

    @property
    def time(self) -> tuple[int, ...]:
        """Places in (1, s, R) of simulated time, where it depends on chance."""
        names = [name for name in self.names() if not name.startswith("client ")]
        return tuple(1 + k for k, name in enumerate(names) if name.startswith("time"))

    def numbers(self) -> int:
        """About how many numbers a round's map takes while it is made."""
        rest, zero = self.rest(jnp.zeros((), jnp.int32)), jax.ShapeDtypeStruct((), jnp.int32)
        carried, nodes = jax.eval_shape(self._carried, rest, zero)
        c, y = self.common + self.layout.width, len(carried)
        g, o = c + y, y + self.layout.width + self.layout.model
        deviation = y * y if self.adds[0] else y * g * len(nodes)
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
        """With the numbers that rounds have so much later: steps are shorter by then."""
        leaves = jax.tree_util.tree_leaves_with_path(self.first)
        random = (*self.layout.shared, *self.layout.rows)
        names = [jax.tree_util.keystr(path) for k, (path, _) in enumerate(leaves) if k not in random]
        still = [leaf + rounds if name == ".round" else leaf for name, leaf in zip(names, self.still, strict=True)]
        return dataclasses.replace(self, still=still)

    def with_adds(self) -> "Machine":
        """With what is found of `adds`: noise that adds takes far less memory than noise that multiplies."""
        found = np.asarray(_multiplied(self))
        return dataclasses.replace(self, adds=(bool(found[0] <= _NOTHING), bool(found[1] <= _NOTHING)))

    def begin(self) -> Law:
        """All is certain before the first round."""
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
        return Rules(data, weight.astype(jnp.float64), *self.channel, self.spread[client], self.adds)

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
            began = jax.vmap(self.rest)(jnp.maximum(round - jnp.arange(self.ages), 0))
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
        """Clients whose nodes are worked on side by side."""
        rules = jax.eval_shape(self.rules, rest, jax.ShapeDtypeStruct((), jnp.int32))
        width = self.common + self.layout.width + self.layout.model
        numbers = self.ages * len(rules.weight) * width**2 * len(self.chances.work[0])
        return int(np.clip(_AT_ONCE // numbers, 1, self.layout.clients))

    def check_around(self, mean: np.ndarray, covariance: np.ndarray) -> None:
        """Refuse rounds that bend where the law lies, [rounds + 1, ...]: a clip may, far from the start."""
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


@quickly_compiled
def _beside_adding(machine: Machine, rest: State) -> Array:
    """What the first client's update does to the server beside being added by its weight."""
    rules, s0, client = machine.rules(rest, jnp.zeros((), jnp.int32)), machine.at[0], jnp.zeros((), jnp.int32)
    run = OneClient(machine.setup, machine.layout, rest, machine.rows, client, None)
    _, form, sent = training_map(run, s0, machine.rows[client], rules)
    effect, _ = effect_map(run, s0, machine.rows[client], sent, form)
    return jnp.maximum(jnp.abs(effect[0]).max(), jnp.abs(effect[1, :, : machine.common]).max())


def build(
    problem: Problem, algorithm: Algorithm, theta: Theta, rounds: int, clock: Clock | None = None, exact: bool = True
) -> tuple[Machine, Any, Any]:
    """The machine, the start and the stable point where one is known. Inside of `jax.enable_x64(True)`.

    Where it is not `exact`, rounds need not be affine: it is linearized at the start.
    """
    clock = clock or Clock()
    algorithm, discount = _without_ages(problem, algorithm, clock)
    check_covered(problem, algorithm, exact)
    setup, start, stable = make_ready(problem, algorithm, theta, clock, Record(), jnp.float64)
    setup = dataclasses.replace(setup, metrics={})
    if exact:
        check_rules(setup, start)
    race = None if discount is None else read_race(setup, discount)
    chances = read_chances(setup)
    again, period = _turns(setup, chances)
    again += 0 if race is None else race.ages
    layout, states, drawn = find_layout(setup, start, max(rounds, again + period))
    machine = _assemble(setup, layout, states, chances, drawn, start, period, Polynomial(DEGREE) if exact else NODES)
    check_size(layout, machine.size)
    x, rng = np.asarray(machine.begin().mean)[1:], np.random.default_rng(2)
    one, other = (x + (1.0 + np.abs(x).max()) * rng.standard_normal(len(x)) for _ in range(2))
    # The first round is often another one: nothing is remembered yet.
    rests = [machine.rest(jnp.asarray(round)) for round in (0, again)]
    added = [check_affine(setup, layout, rest, drawn, one, other, exact) for rest in rests]
    check_mean(setup, start)
    machine = machine.with_adds()
    check_numbers(machine.numbers())
    if race is not None:
        check_race(race, layout.width, machine.common)
        check_added(all(added) and float(_beside_adding(machine, rests[-1])) <= _NOTHING)
        return _with_race(machine, race), start, stable
    if not all(added):
        machine = dataclasses.replace(machine, listed=list_all(setup, len(chances.mean), np.asarray(chances.work)))
    return machine, start, stable


def _without_ages(problem: Problem, algorithm: Algorithm, clock: Clock) -> tuple[Algorithm, np.ndarray | None]:
    """The algorithm where everybody begins anew each round, and the weights of ages; None where none matters."""
    clients = problem.clients
    work = clock.time(jnp.arange(clients), jnp.full(clients, float(algorithm.steps)))
    told = declared(algorithm.participation, "arrival_law", clients, np.broadcast_to(np.asarray(work), (clients,)))
    if told is None:
        return algorithm, None
    return dataclasses.replace(algorithm, participation=told[0]), told[1]


def _with_race(machine: Machine, race: Race) -> Machine:
    s, rows = machine.start[0], race.begin(machine.start[0])
    return dataclasses.replace(machine, race=race, start=(s, rows), at=(machine.at[0], rows))


def rebuild(machine: Machine, problem: Problem, algorithm: Algorithm, theta: Theta) -> Machine:
    """The same machine with other numbers in problem and algorithm: what was tried of that one holds for it."""
    clock = machine.setup.clock
    algorithm, discount = _without_ages(problem, algorithm, clock)
    setup, start, _ = make_ready(problem, algorithm, theta, clock, Record(), jnp.float64)
    setup, layout = dataclasses.replace(setup, metrics={}), machine.layout
    chances = read_chances(setup)
    states, _ = follow(setup, start, jnp.asarray(0), machine.rounds)
    made = _assemble(setup, layout, states, chances, machine.drawn, start, machine.period, machine.nodes)
    made = dataclasses.replace(made, adds=machine.adds)
    if discount is not None:
        return _with_race(made, read_race(setup, discount))
    if machine.listed is not None:
        made = dataclasses.replace(made, listed=list_all(setup, len(chances.mean), np.asarray(chances.work)))
    return made


def _turns(setup: Setup, chances: Chances) -> tuple[int, int]:
    """Rounds until all that depends on their number has begun to repeat, and after how many it does."""
    if not setup.algorithm.deploy.is_regular:
        text = "moments: deployment at growing intervals, or of other models, does not repeat; use pf.run."
        raise ValueError(coded("not-affine", text))
    turns = len(chances.mean), max(setup.algorithm.deploy.period, 1), max(setup.remembered_rounds, 1)
    return sum(turns), math.lcm(*turns)


def _assemble(
    setup: Setup,
    layout: Layout,
    states: State,
    chances: Chances,
    drawn: list[Cohort],
    start: Theta,
    period: int,
    nodes: int = NODES,
) -> Machine:
    s, R, first = layout.split(jax.tree.map(lambda leaf: leaf[0], states))
    random = (*layout.shared, *layout.rows)
    still = [leaf for k, leaf in enumerate(jax.tree.leaves(states)) if k not in random]
    spread = jnp.asarray(batch_spread(setup, start), jnp.float64)
    model = jax.tree.map(jnp.zeros_like, layout.join(s, R, first).theta)
    channel = declared(setup.algorithm.channel, "quadrature", model)
    if channel is None:
        name = type(setup.algorithm.channel).__name__
        text = f"moments: channel={name} is not linear in the update, or keeps its draws to itself; use pf.run."
        raise ValueError(coded("not-affine", text))
    at = (_beside(s), _beside(R))
    return Machine(setup, layout, first, still, (s, R), at, chances, spread, channel, drawn, None, period, nodes)


def _beside(x: Array) -> Array:
    """Near x, where it happens nowhere that a norm of nothing is to be differentiated."""
    steps = jnp.arange(1.0, 1.0 + x.size) * (0.5 * 5**0.5 - 0.5) % 1.0
    return x + 1e-2 * (1.0 + jnp.abs(x).max(initial=0.0)) * (0.5 + steps.reshape(x.shape))

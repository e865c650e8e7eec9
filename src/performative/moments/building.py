"""Build the machine of a problem and an algorithm: what is random, its probabilities, and whether rounds are affine."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from performative._base.messages import coded
from performative._base.run_once import quickly_compiled
from performative._engine.clock import Clock
from performative._engine.ready import make_ready
from performative._engine.risk import NODES
from performative._engine.setup import Setup
from performative.algorithm import Algorithm
from performative.facts import declared
from performative.moments.buffered import Race, check_added, check_race, read_race
from performative.moments.client import OneClient, effect_map, training_map
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
from performative.moments.listed import list_all
from performative.moments.machine import NOTHING, Machine
from performative.moments.probes import check_affine, check_mean
from performative.populations.nodes import Polynomial
from performative.problem import Problem
from performative.record import Record
from performative.types import Cohort, State, Theta


@quickly_compiled
def _beside_adding(machine: Machine, rest: State) -> Array:
    """The effect of the first client's update on the server other than being added with its weight."""
    rules, s0, client = machine.rules(rest, jnp.zeros((), jnp.int32)), machine.at[0], jnp.zeros((), jnp.int32)
    run = OneClient(machine.setup, machine.layout, rest, machine.rows, client, None)
    _, form, sent = training_map(run, s0, machine.rows[client], rules)
    effect, _ = effect_map(run, s0, machine.rows[client], sent, form)
    return jnp.maximum(jnp.abs(effect[0]).max(), jnp.abs(effect[1, :, : machine.common]).max())


def build(
    problem: Problem, algorithm: Algorithm, theta: Theta, rounds: int, clock: Clock | None = None, exact: bool = True
) -> tuple[Machine, Any, Any]:
    """The machine, the start and the stable point if it is known. Call it inside `jax.enable_x64(True)`.

    If not `exact`, rounds need not be affine: they are linearized at the start.
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
    # The first round often differs: memories are still empty.
    rests = [machine.rest(jnp.asarray(round)) for round in (0, again)]
    added = [check_affine(setup, layout, rest, drawn, one, other, exact) for rest in rests]
    check_mean(setup, start)
    machine = machine.with_adds()
    if exact and machine.moves:
        name = type(problem.population).__name__
        text = f"moments: population={name}: the probabilities of its samples depend on the model; use pf.run."
        raise ValueError(coded("not-affine", text))
    check_numbers(machine.numbers())
    if race is not None:
        check_race(race, layout.width, machine.common)
        check_added(all(added) and float(_beside_adding(machine, rests[-1])) <= NOTHING)
        return _with_race(machine, race), start, stable
    if not all(added):
        machine = dataclasses.replace(machine, listed=list_all(setup, len(chances.mean), np.asarray(chances.work)))
    return machine, start, stable


def _without_ages(problem: Problem, algorithm: Algorithm, clock: Clock) -> tuple[Algorithm, np.ndarray | None]:
    """The algorithm with every client restarting each round, and the weights of ages; None if ages do not matter."""
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
    """The same machine with other numbers in problem and algorithm; its checks carry over."""
    clock = machine.setup.clock
    algorithm, discount = _without_ages(problem, algorithm, clock)
    setup, start, _ = make_ready(problem, algorithm, theta, clock, Record(), jnp.float64)
    setup, layout = dataclasses.replace(setup, metrics={}), machine.layout
    chances = read_chances(setup)
    states, _ = follow(setup, start, jnp.asarray(0), machine.rounds)
    made = _assemble(setup, layout, states, chances, machine.drawn, start, machine.period, machine.nodes)
    made = dataclasses.replace(made, adds=machine.adds, moves=machine.moves)
    if discount is not None:
        return _with_race(made, read_race(setup, discount))
    if machine.listed is not None:
        made = dataclasses.replace(made, listed=list_all(setup, len(chances.mean), np.asarray(chances.work)))
    return made


def _turns(setup: Setup, chances: Chances) -> tuple[int, int]:
    """Rounds until everything that depends on the round number repeats, and the period."""
    if not setup.algorithm.deploy.is_regular:
        text = "moments: deployment at growing intervals, or of other models, is not periodic; use pf.run."
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
        text = f"moments: channel={name} is not linear in the update, or does not expose its draws; use pf.run."
        raise ValueError(coded("not-affine", text))
    at = (_beside(s), _beside(R))
    return Machine(setup, layout, first, still, (s, R), at, chances, spread, channel, drawn, None, period, nodes)


def _beside(x: Array) -> Array:
    """A point near x at which no zero norm has to be differentiated."""
    steps = jnp.arange(1.0, 1.0 + x.size) * (0.5 * 5**0.5 - 0.5) % 1.0
    return x + 1e-2 * (1.0 + jnp.abs(x).max(initial=0.0)) * (0.5 + steps.reshape(x.shape))

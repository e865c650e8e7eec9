"""The server's part of a round: choose and broadcast, then aggregate. The same in simulation and over a network."""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from performative._base.checks import check_like
from performative._base.client_axis import client_axes, take_clients, take_rows
from performative._engine.cohorts import reject_broken, spread_out, where_rows
from performative._engine.keys import RunKeys
from performative._engine.records import Report
from performative._engine.risk import NODES
from performative._engine.scenes import deployed_models
from performative._engine.setup import Setup
from performative._engine.sharding import map_rows
from performative._engine.totals import add_at, as_total
from performative.participation import Selection
from performative.sharing import AbstractSharing
from performative.types import Broadcast, ClientMemory, Cohort, Scene, ServerMemory, State, Upload


def known(setup: Setup, state: State) -> Selection:
    """What the server knows when it chooses."""
    measure = functools.partial(measure_losses, setup, state)
    return Selection(setup.weights, setup.tables, state.round, state.theta, measure, setup.takes)


def begin_server(setup: Setup, state: State, keys: RunKeys) -> Any:
    """What participation remembers before the first round."""
    key = keys.of_server(jnp.asarray(-1, jnp.int32))
    return setup.algorithm.participation.begin(key, known(setup, state), state.server.participation)


def open_round(setup: Setup, state: State, keys: RunKeys) -> tuple[Cohort, Broadcast, PyTree]:
    """The server selects the cohort and makes its broadcast."""
    server = keys.of_server(state.round)
    cohort, chosen = setup.algorithm.participation.select(server, known(setup, state), state.server.participation)
    return cohort, make_broadcast(setup, state, cohort), chosen


def make_broadcast(setup: Setup, state: State, cohort: Cohort) -> Broadcast:
    """What the server sends to a cohort."""
    algorithm = setup.algorithm
    deployed = algorithm.deploy.next(state.deployed, state.theta, state.round)
    if algorithm.deploy.lag:
        deployed = _late(state, algorithm.deploy.lag)
    if algorithm.deploy.explore is not None and setup.problem.domain is not None:
        deployed = setup.problem.domain.project(deployed)
    extra = algorithm.aggregator.broadcast(state.server.aggregator)
    if extra and not algorithm.sharing.is_one:
        names = type(algorithm.sharing).__name__, type(algorithm.aggregator).__name__
        raise ValueError(
            f"sharing={names[0]} with {names[1]}: what it sends with the model assumes one model that all clients "
            "train; use sharing=pf.sharing.OneModel()."
        )
    size = algorithm.participation.size(setup.weights.shape[0])
    time = None if state.time is None else state.time.high
    models = deployed_models(setup, state, deployed, cohort)
    broadcast = Broadcast(state.theta, deployed, extra, state.round, algorithm.steps, size, time, models)
    if state.past is not None:
        at = state.round % setup.remembered_rounds
        past = jax.tree.map(lambda rows, new: rows.at[at].set(new), state.past, broadcast.sent())
        broadcast = dataclasses.replace(broadcast, past=past)
    return broadcast


def _late(state: State, lag: int) -> Any:
    """The model of `lag` rounds ago, or the first one if there is none that old."""
    first = state.past[0]
    rows = jax.tree.leaves(first)[0].shape[0]
    at = (state.round - lag) % rows
    return jax.tree.map(
        lambda old, begin: jnp.where(state.round >= lag, old[at], jnp.where(state.round == 0, begin, old[0])),
        first, state.theta,
    )  # fmt: skip


def measure_losses(setup: Setup, state: State, ids: Array, key: Array, samples: int | None = None) -> Array:
    """The loss of each of these clients at the server's model, on data that responded to the last deployed model.

    Exact (over a table, or quadrature nodes) if `samples` is None.
    """
    problem, everyone = setup.problem, setup.algorithm.sharing
    rows, axes = take_clients(problem.population, ids)
    arrays, rest = eqx.partition(rows, eqx.is_array)

    def one(rows: PyTree, client: Array, world: PyTree, own: PyTree, seen: PyTree) -> Array:
        population, sharing = eqx.combine(rows, rest), everyone.of(state.theta, client, state.round)
        theta = sharing.meet(sharing.local(state.theta, own, client))
        deployed = sharing.meet(sharing.local(state.deployed, own if seen is None else seen, client))
        if samples is None:
            noise, share = population.quadrature_within(world, deployed, NODES)
        else:
            noise = population.draw(jax.random.fold_in(key, client), (samples,), deployed)
            share = jnp.full((samples,), 1 / samples, setup.weights.dtype)
        each = jax.vmap(lambda u: problem.loss(theta, population.sample(u, world, deployed)))(noise)
        return jnp.sum(share.astype(each.dtype) * each)

    memory = take_rows((state.clients.world, state.clients.own, state.clients.seen), ids)
    return jax.vmap(one, in_axes=(axes, 0, 0, 0, 0))(arrays, ids, *memory)


def move_absent_worlds(
    setup: Setup, before: ClientMemory, after: ClientMemory, cohort: Cohort, broadcast: Broadcast
) -> ClientMemory:
    """absent="reacts": the worlds of absent clients react to the deployed model too (costs O(N))."""
    population = setup.problem.population
    if before.world is None or setup.algorithm.participation.is_full:
        return after
    arrays, rest = eqx.partition(population, eqx.is_array)
    loss, N = setup.compute.loss(setup.problem.loss), jax.tree.leaves(before.world)[0].shape[0]

    sharing = setup.algorithm.sharing

    def one(
        sharing: AbstractSharing, scene: Scene, round: Array, rows: PyTree, world: PyTree, own: PyTree, client: Array
    ) -> Any:
        sharing = sharing.of(scene.theta, client, round)
        met = sharing.meet(sharing.local(scene.theta, own, client))
        player = None if scene.models is None else sharing.player(client)
        return eqx.combine(rows, rest).deploy(world, Scene(met, scene.loss, scene.time, scene.models, player))

    scene = Scene(broadcast.deployed, loss, broadcast.time, broadcast.models)
    lead = (client_axes(arrays), 0, 0, 0)
    react = map_rows(eqx.Partial(one, sharing, scene, broadcast.round), lead, setup.compute.at_once, N, setup.mesh)
    own = before.own if before.seen is None else before.seen
    clients = jnp.minimum(jnp.arange(N, dtype=jnp.int32), setup.weights.shape[0] - 1)
    present = spread_out(cohort, N).active
    assert present is not None
    world = where_rows(present, after.world, react(arrays, before.world, own, clients))
    return dataclasses.replace(after, world=world)


def close_round(
    setup: Setup,
    state: State,
    cohort: Cohort,
    broadcast: Broadcast,
    upload: Upload,
    clients: ClientMemory,
    chosen: PyTree,
    total: PyTree = None,
) -> tuple[State, Report]:
    """The aggregator turns uploads into a move.

    If `total` is given, it is the sum of the updates weighted by `aggregator.sum_weights`, and `upload` contains none.
    """
    algorithm, problem = setup.algorithm, setup.problem
    asked, cohort = cohort, reject_broken(cohort, upload)
    chosen = algorithm.participation.observe(cohort, upload, chosen)
    sent, sharing, aggregator = upload.to_aggregate(), algorithm.sharing, algorithm.aggregator
    if total is None:
        balanced = sharing.balance(sent.delta, state.theta, cohort, state.round, state.server.sharing)
        sent = eqx.tree_at(lambda one: one.delta, sent, balanced)
        move, aggregated = aggregator.aggregate(state.theta, sent, cohort, setup.weights, state.server.aggregator)
    else:
        before = state.server.aggregator
        move, aggregated = aggregator.aggregate_sum(state.theta, total, sent, cohort, setup.weights, before)
    check_like(f"the move of {type(algorithm.aggregator).__name__}", move, state.theta)
    theta = jax.tree.map(jnp.add, state.theta, move)
    if problem.domain is not None:
        theta = algorithm.sharing.each_shared(problem.domain.project, theta)
    if algorithm.absent == "reacts":
        clients = move_absent_worlds(setup, state.clients, clients, cohort, broadcast)
    counts = state.participation
    if counts is not None:
        in_place = algorithm.participation.is_full and setup.mesh is None  # row i is client i
        counts = (
            counts + as_total(cohort.weight, counts.high.dtype)
            if in_place
            else add_at(counts, cohort.ids, cohort.weight)
        )
    time = state.time
    if time is not None:
        time = time + as_total(setup.lasts(asked, upload.steps, time.high.dtype), time.high.dtype)
    trained = sharing.tallied(state.server.sharing, state.theta, cohort, state.round)
    server = ServerMemory(chosen, aggregated, trained)
    after = State(theta, broadcast.deployed, clients, server, state.round + 1, counts, time, broadcast.past)
    return after, Report(state, asked, cohort, upload)

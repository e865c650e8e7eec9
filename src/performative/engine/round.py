"""One round of a federation, and the ways to run its clients."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from performative.client_axis import client_axes, put_rows, take_clients, take_rows
from performative.engine.client import client_round
from performative.engine.keys import RunKeys
from performative.engine.report import Report, Setup, reject_broken, report_round
from performative.engine.sharding import fill_up, lay_out, map_rows
from performative.engine.totals import add_at
from performative.errors import check_like
from performative.participation import Selection
from performative.risk import NODES
from performative.types import (
    Broadcast,
    ClientMemory,
    Cohort,
    Memory,
    Secrets,
    ServerMemory,
    State,
    Upload,
)


def open_round(setup: Setup, state: State, keys: RunKeys) -> tuple[Cohort, Broadcast, Memory]:
    """The server chooses the cohort and says what it has to say."""
    algorithm, server = setup.algorithm, keys.of_server(state.round)
    measure = functools.partial(measure_losses, setup, state)
    selection = Selection(setup.weights, setup.tables, state.round, state.theta, measure)
    cohort, chosen = algorithm.participation.select(server, selection, state.server.participation)
    deployed = algorithm.deploy.next(state.deployed, state.theta, state.round)
    extra = algorithm.aggregator.broadcast(state.server.aggregator)
    size = algorithm.participation.size(setup.weights.shape[0])
    return cohort, Broadcast(state.theta, deployed, extra, state.round, algorithm.steps, size), chosen


def measure_losses(setup: Setup, state: State, ids: Array, key: Any, samples: int | None = None) -> Array:
    """The loss of each of these clients at the server's model, on data as they respond to the model last deployed.

    Exact (over a table, or the nodes of a law) where `samples` is None.
    """
    problem, theta, deployed = setup.problem, state.theta, state.deployed
    rows, axes = take_clients(problem.population, ids)
    arrays, rest = eqx.partition(rows, eqx.is_array)

    def one(rows: Any, client: Array, world: Any) -> Array:
        population = eqx.combine(rows, rest)
        if samples is None:
            noise, share = population.nodes_within(world, deployed, NODES)
        else:
            noise = population.draw(jax.random.fold_in(key, client), (samples,), deployed)
            share = jnp.full((samples,), 1 / samples, setup.weights.dtype)
        each = jax.vmap(lambda u: problem.loss(theta, population.sample(u, world, deployed)))(noise)
        return jnp.sum(share.astype(each.dtype) * each)

    worlds = take_rows(state.clients.world, ids)
    return jax.vmap(one, in_axes=(axes, 0, 0))(arrays, ids, worlds)


def spread_out(cohort: Cohort, clients: int) -> Cohort:
    """The same cohort with a row for every client, absent ones inactive."""

    def place(rows: Array, empty: Any) -> Array:
        return jnp.full((clients,), empty, rows.dtype).at[cohort.ids].set(rows, mode="drop")

    here = jnp.ones_like(cohort.ids, dtype=bool) if cohort.active is None else cohort.active
    steps = None if cohort.steps is None else place(cohort.steps, 1)
    ids = jnp.arange(clients, dtype=cohort.ids.dtype)
    return Cohort(ids, place(cohort.weight, 0), place(here, False), steps, cohort.elapsed)


def run_dense(
    setup: Setup, cohort: Cohort, broadcast: Broadcast, memory: ClientMemory, keys: RunKeys,
    secrets: Secrets | None = None,
) -> tuple[Cohort, Upload, ClientMemory]:  # fmt: skip
    """Every client computes; nothing is gathered. Those that sit out keep their memory and weigh nothing."""
    if not setup.algorithm.participation.everyone:
        cohort = spread_out(cohort, setup.weights.shape[0])
    population = setup.problem.population
    upload, after = _map_clients(setup, population, client_axes(population), cohort, broadcast, memory, keys, secrets)
    if cohort.active is not None:
        after = _where_rows(cohort.active, after, memory)
    return cohort, upload, after


def run_gathered(
    setup: Setup, cohort: Cohort, broadcast: Broadcast, memory: ClientMemory, keys: RunKeys,
    secrets: Secrets | None = None,
) -> tuple[Cohort, Upload, ClientMemory]:  # fmt: skip
    """Only the K rows of the cohort compute; memory is updated in place at those rows."""
    rows, axes = take_clients(setup.problem.population, cohort.ids)
    mine = take_rows(memory, cohort.ids)
    upload, after = _map_clients(setup, rows, axes, cohort, broadcast, mine, keys, secrets)
    return cohort, upload, put_rows(memory, cohort.ids, after)


def run_sharded(
    setup: Setup, cohort: Cohort, broadcast: Broadcast, memory: ClientMemory, keys: RunKeys,
    secrets: Secrets | None = None,
) -> tuple[Cohort, Upload, ClientMemory]:  # fmt: skip
    """Over the devices of a mesh: as `dense` where everyone takes part, else as `gather`."""
    assert setup.mesh is not None
    cohort, secrets = fill_up(cohort, secrets, setup.weights.shape[0], setup.mesh)
    run = run_dense if setup.algorithm.participation.everyone else run_gathered
    return run(setup, cohort, broadcast, memory, keys, secrets)


def _map_clients(
    setup: Setup, population: Any, axes: Any, cohort: Cohort, broadcast: Broadcast, memory: Any, keys: RunKeys,
    secrets: Secrets | None,
) -> tuple[Upload, ClientMemory]:  # fmt: skip
    arrays, rest = eqx.partition(population, eqx.is_array)

    def one(
        setup: Setup, broadcast: Broadcast, keys: RunKeys, rows: Any, client: Array, mine: ClientMemory,
        steps: Array | None, secrets: Secrets | None,
    ) -> Any:  # fmt: skip
        mine_keys = keys.of_client(broadcast.round, client)
        whole = eqx.combine(rows, rest)
        return client_round(
            setup.problem, setup.algorithm, whole, broadcast, mine, mine_keys, steps, client, secrets, setup.compute
        )

    bare = eqx.tree_at(lambda s: s.problem.population, setup, None)
    lead = (axes, 0, 0, None if cohort.steps is None else 0, 0)
    shared = eqx.Partial(one, bare, broadcast, keys)
    each = map_rows(shared, lead, setup.compute.at_once, cohort.ids.shape[0], setup.mesh)
    return each(arrays, cohort.ids, memory, cohort.steps, secrets)


def _where_rows(active: Array, new: PyTree, old: PyTree) -> PyTree:
    def pick(n: Array, o: Array) -> Array:
        return jnp.where(active.reshape(active.shape + (1,) * (n.ndim - 1)), n, o)

    return jax.tree.map(pick, new, old)


def move_absent_worlds(
    setup: Setup, before: ClientMemory, after: ClientMemory, cohort: Cohort, broadcast: Broadcast
) -> ClientMemory:
    """absent="moves": the worlds of clients that sat out react to the deployed model too (costs O(N))."""
    population = setup.problem.population
    if before.world is None or setup.algorithm.participation.everyone:
        return after
    arrays, rest = eqx.partition(population, eqx.is_array)
    loss, N = setup.compute.loss(setup.problem.loss), jax.tree.leaves(before.world)[0].shape[0]

    def one(deployed: Any, loss: Any, rows: Any, world: Any) -> Any:
        return eqx.combine(rows, rest).deploy(world, deployed, loss)

    shared, lead = eqx.Partial(one, broadcast.deployed, loss), (client_axes(arrays), 0)
    react = map_rows(shared, lead, setup.compute.at_once, N, setup.mesh)
    present = spread_out(cohort, N).active
    assert present is not None
    world = _where_rows(present, after.world, react(arrays, before.world))
    return ClientMemory(world, after.batch, after.estimator, after.channel)


def close_round(
    setup: Setup,
    state: State,
    cohort: Cohort,
    broadcast: Broadcast,
    upload: Upload,
    clients: ClientMemory,
    chosen: Memory,
) -> tuple[State, Report]:
    """The aggregator turns uploads into a move; the books are brought up to date."""
    algorithm, problem = setup.algorithm, setup.problem
    asked = cohort
    cohort, rejected = reject_broken(asked, upload)
    chosen = algorithm.participation.observe(cohort, upload, chosen)
    move, aggregated = algorithm.aggregator.aggregate(
        state.theta, upload.to_aggregate(), cohort, setup.weights, state.server.aggregator
    )
    check_like(f"the move of {type(algorithm.aggregator).__name__}", move, state.theta)
    theta = jax.tree.map(jnp.add, state.theta, move)
    if problem.domain is not None:
        theta = problem.domain.project(theta)
    if algorithm.absent == "moves":
        clients = move_absent_worlds(setup, state.clients, clients, cohort, broadcast)
    counts = state.participation
    if counts is not None:
        counts = add_at(counts, cohort.ids, cohort.weight)
    after = State(theta, broadcast.deployed, clients, ServerMemory(chosen, aggregated), state.round + 1, counts)
    return after, report_round(setup, asked, cohort, upload, state.server.aggregator, rejected)


EXECUTORS = {"dense": run_dense, "gather": run_gathered, "sharded": run_sharded}


def federated_round(
    setup: Setup, state: State, keys: RunKeys, executor: str = "gather", secrets: Secrets | None = None
) -> tuple[State, Report]:
    """One round: choose, broadcast, run the clients, aggregate. `secrets` hold a row for each row of the cohort."""
    cohort, broadcast, chosen = open_round(setup, state, keys)
    cohort, upload, clients = EXECUTORS[executor](setup, cohort, broadcast, state.clients, keys, secrets)
    after, report = close_round(setup, state, cohort, broadcast, upload, clients, chosen)
    return lay_out(after, setup.weights.shape[0], setup.mesh), report

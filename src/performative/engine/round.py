"""One round of a federation, and the ways to run its clients."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from performative.aggregators import weighted_sum
from performative.algorithm import Algorithm
from performative.client_axis import client_axes, put_rows, take_clients, take_rows
from performative.engine.client import client_round
from performative.engine.keys import RunKeys
from performative.errors import check_finite
from performative.participation import Selection
from performative.problem import Problem
from performative.types import (
    Broadcast,
    ClientMemory,
    Cohort,
    Memory,
    Numbers,
    Secrets,
    ServerMemory,
    State,
    Upload,
    is_concrete,
    number,
    squared_norm,
)


class Clock(eqx.Module):
    """Simulated time: a local step takes `compute`, an exchange with the server `communication`.

    A round takes compute * (largest tau_i of the cohort) + communication + the time that the server waited.
    """

    compute: Any = number(default=1.0)
    communication: Any = number(default=0.0)

    def __check_init__(self) -> None:
        for name in ("compute", "communication"):
            cost = getattr(self, name)
            check_finite("Clock", **{name: cost})
            if is_concrete(cost) and np.any(np.asarray(cost) < 0):
                raise ValueError(f"Clock: {name} must not be negative; got {cost}.")


class Setup(eqx.Module):
    """A problem and an algorithm made ready: numbers on the device, weights spelled out, tables worked out."""

    problem: Problem
    algorithm: Algorithm
    weights: Numbers
    tables: PyTree
    clock: Clock
    consensus: bool = eqx.field(static=True, default=True)


class Report(eqx.Module):
    """What a round tells: how far its clients ended from each other (None if not asked), and sums over them."""

    consensus: Float[Array, "..."] | None
    time: Float[Array, "..."]
    uploads: Float[Array, "..."]
    metrics: dict[str, Array]


def open_round(setup: Setup, state: State, keys: RunKeys) -> tuple[Cohort, Broadcast, Memory]:
    """The server chooses the cohort and says what it has to say."""
    algorithm, server = setup.algorithm, keys.of_server(state.round)
    selection = Selection(setup.weights, setup.tables, state.round, state.theta)
    cohort, chosen = algorithm.participation.select(server, selection, state.server.participation)
    deployed = algorithm.deploy.next(state.deployed, state.theta, state.round)
    extra = algorithm.aggregator.broadcast(state.server.aggregator)
    size = algorithm.participation.size(setup.weights.shape[0])
    return cohort, Broadcast(state.theta, deployed, extra, state.round, algorithm.steps, size), chosen


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


def _map_clients(
    setup: Setup, population: Any, axes: Any, cohort: Cohort, broadcast: Broadcast, memory: Any, keys: RunKeys,
    secrets: Secrets | None,
) -> tuple[Upload, ClientMemory]:  # fmt: skip
    arrays, rest = eqx.partition(population, eqx.is_array)

    def one(rows: Any, client: Array, mine: ClientMemory, steps: Array | None, secrets: Secrets | None) -> Any:
        mine_keys = keys.of_client(broadcast.round, client)
        whole = eqx.combine(rows, rest)
        return client_round(setup.problem, setup.algorithm, whole, broadcast, mine, mine_keys, steps, client, secrets)

    steps_axis = None if cohort.steps is None else 0
    return jax.vmap(one, in_axes=(axes, 0, 0, steps_axis, 0))(arrays, cohort.ids, memory, cohort.steps, secrets)


def _where_rows(active: Array, new: PyTree, old: PyTree) -> PyTree:
    def pick(n: Array, o: Array) -> Array:
        return jnp.where(active.reshape(active.shape + (1,) * (n.ndim - 1)), n, o)

    return jax.tree.map(pick, new, old)


def move_absent_worlds(
    setup: Setup, before: ClientMemory, after: ClientMemory, cohort: Cohort, broadcast: Broadcast
) -> ClientMemory:
    """absent="moves": the worlds of clients that sat out react to the deployed model too (costs O(N))."""
    population, N = setup.problem.population, setup.weights.shape[0]
    if before.world is None or setup.algorithm.participation.everyone:
        return after
    arrays, rest = eqx.partition(population, eqx.is_array)
    react = jax.vmap(
        lambda rows, world: eqx.combine(rows, rest).deploy(world, broadcast.deployed, setup.problem.loss),
        in_axes=(client_axes(arrays), 0),
    )
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
    move, aggregated = algorithm.aggregator.aggregate(
        state.theta, upload, cohort, setup.weights, state.server.aggregator
    )
    theta = jax.tree.map(jnp.add, state.theta, move)
    if problem.domain is not None:
        theta = problem.domain.project(theta)
    if algorithm.absent == "moves":
        clients = move_absent_worlds(setup, state.clients, clients, cohort, broadcast)
    counts = state.participation
    if counts is not None:
        counts = counts.at[cohort.ids].add(cohort.weight, mode="drop")
    after = State(theta, broadcast.deployed, clients, ServerMemory(chosen, aggregated), state.round + 1, counts)
    return after, report_round(setup, cohort, upload)


def consensus_error(cohort: Cohort, upload: Upload) -> Float[Array, ""]:
    """sum_i a_i |theta_i - theta_bar|^2 / sum_i a_i over the cohort, theta_bar the mean with the same weights."""
    # Divided after the sum, so that the compiler sees the sum of `Mean` again and takes it only once.
    weight, total = cohort.weight, jnp.sum(cohort.weight)
    total = jnp.where(total > 0, total, 1)  # a cohort of clients without weight agrees by convention
    centre = jax.tree.map(lambda v: v / total.astype(v.dtype), weighted_sum(upload.delta, weight, cohort.active))
    apart = jax.vmap(lambda d: squared_norm(jax.tree.map(jnp.subtract, d, centre)))(upload.delta)
    return weighted_sum(apart, weight, cohort.active) / total.astype(apart.dtype)


def report_round(setup: Setup, cohort: Cohort, upload: Upload) -> Report:
    """The consensus error, the simulated time, and the sums of clients' counts."""
    active, dtype = cohort.active, setup.weights.dtype
    present = jnp.ones(cohort.weight.shape, bool) if active is None else active

    def total(counts: Array) -> Array:
        return jnp.sum(jnp.where(present, counts.astype(dtype), 0))

    longest = jnp.max(jnp.where(present, upload.steps, 0)).astype(dtype)
    time = longest * setup.clock.compute + setup.clock.communication + cohort.elapsed
    return Report(
        consensus=consensus_error(cohort, upload).astype(dtype) if setup.consensus else None,
        time=jnp.asarray(time, dtype),
        uploads=total(present),
        metrics={name: total(values) for name, values in upload.metrics.items()},
    )


EXECUTORS = {"dense": run_dense, "gather": run_gathered}


def federated_round(
    setup: Setup, state: State, keys: RunKeys, executor: str = "gather", secrets: Secrets | None = None
) -> tuple[State, Report]:
    """One round: choose, broadcast, run the clients, aggregate. `secrets` hold a row for each row of the cohort."""
    cohort, broadcast, chosen = open_round(setup, state, keys)
    cohort, upload, clients = EXECUTORS[executor](setup, cohort, broadcast, state.clients, keys, secrets)
    return close_round(setup, state, cohort, broadcast, upload, clients, chosen)

"""How the engine uses a part of each slot: `use(part, inputs, memory) -> (outputs, memory)`."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from performative._base.checks import check_like
from performative._base.client_axis import slice_client
from performative._base.run_once import quickly_compiled
from performative._engine.executors import Gather
from performative._engine.keys import run_keys
from performative._engine.round import measure_losses
from performative._engine.setup import Setup
from performative.aggregators import AbstractAggregator
from performative.batches import AbstractBatch
from performative.channels import AbstractChannel
from performative.estimators import AbstractEstimator
from performative.participation import AbstractParticipation, Selection
from performative.populations import AbstractPopulation
from performative.populations.base import collect
from performative.sharing import AbstractSharing
from performative.types import Broadcast, Cohort, Local, Loss, Sample, Scene, State, Theta, Upload, squared_norm

# A client, a key and a model; `use`, inputs and memory, the last two with a leading axis of instances.
Inputs = tuple[Array, Array, Theta]
Built = tuple[Callable[..., tuple[PyTree, PyTree]], PyTree, PyTree]
INSTANCES = 3


def scene_of(mine: AbstractPopulation, theta: Theta, loss: Loss) -> Scene:
    """The scene of people who face theta; at time 1 for those who read the time."""
    return Scene(theta, loss, jnp.ones(()) if mine.reads_time else None)


def row(tree: PyTree, i: int) -> PyTree:
    """One instance."""
    return jax.tree.map(lambda leaf: leaf[i], tree)


def _clients(setup: Setup, memory: PyTree) -> tuple[Array, PyTree]:
    """One client per instance, and its memory."""
    clients = jnp.arange(INSTANCES, dtype=jnp.int32) % setup.weights.shape[0]
    return clients, jax.tree.map(lambda leaf: leaf[clients], memory)


def _population(setup: Setup, state: State, keys: Array, thetas: Theta) -> Built:
    loss = setup.problem.loss

    def use(population: AbstractPopulation, inputs: Inputs, world: PyTree) -> tuple[Sample, PyTree]:
        client, key, theta = inputs
        mine = slice_client(population, client)
        world = mine.deploy(world, scene_of(mine, theta, loss))
        noise = mine.draw(key, (2, 3), theta)
        z = jax.vmap(jax.vmap(lambda u: mine.sample(u, world, theta)))(noise)
        return z, world

    clients, world = _clients(setup, state.clients.world)
    return use, (clients, keys, thetas), world


def _batch(setup: Setup, state: State, keys: Array, thetas: Theta) -> Built:
    steps = setup.algorithm.steps

    def use(
        batch: AbstractBatch, inputs: Inputs, memory: PyTree, population: AbstractPopulation | None = None
    ) -> tuple[PyTree, PyTree]:
        client, key, theta = inputs
        mine = slice_client(setup.problem.population if population is None else population, client)
        world = mine.init(scene_of(mine, theta, setup.problem.loss))
        standing = jax.random.fold_in(key, 1)
        noise, mask = batch.draw(key, standing, mine, theta, steps, memory)
        z = jax.vmap(jax.vmap(lambda u: mine.sample(u, world, theta)))(noise)
        return (z, mask), batch.advance(memory, jnp.asarray(steps, jnp.int32))

    clients, memory = _clients(setup, state.clients.batch)
    return use, (clients, keys, thetas), memory


def _estimator(setup: Setup, state: State, keys: Array, thetas: Theta) -> Built:
    problem, algorithm = setup.problem, setup.algorithm
    extra = algorithm.aggregator.broadcast(state.server.aggregator)
    z_mask = jnp.asarray([True, True, True, False])

    def use(
        estimator: AbstractEstimator,
        inputs: Inputs,
        memory: PyTree,
        spoil: Callable[[PyTree, Array], PyTree] | None = None,
    ) -> tuple[PyTree, PyTree]:
        client, key, theta = inputs
        mine = slice_client(problem.population, client)
        scene = scene_of(mine, theta, problem.loss)
        world = mine.deploy(mine.init(scene), scene)
        batch = collect(mine, mine.draw(key, z_mask.shape, theta), z_mask, world, theta)
        if spoil is not None:
            batch = dataclasses.replace(batch, z=spoil(batch.z, ~z_mask))
        clock = jnp.zeros((), jnp.int32)
        broadcast = Broadcast(theta, theta, extra, clock, algorithm.steps)
        local = Local(problem.loss, mine, world, theta, broadcast, clock, algorithm.eta(clock), client)
        ahead = estimator.draw(jax.random.fold_in(key, 1), 1, theta)
        out = estimator.estimate(row(ahead, 0), theta, batch, local, memory)
        counts = {name: jnp.asarray(count) for name, count in out.metrics.items()}
        draft = Upload(out.direction, jnp.asarray(1, jnp.int32), None, counts)
        sent, memory = estimator.finish(draft, local, out.memory)
        return (out.direction, out.metrics, sent), memory

    clients, memory = _clients(setup, state.clients.estimator)
    return use, (clients, keys, thetas), memory


def _channel(setup: Setup, state: State, keys: Array, thetas: Theta) -> Built:
    def use(channel: AbstractChannel, inputs: tuple[Array, Theta], memory: PyTree) -> tuple[Theta, PyTree]:
        key, delta = inputs
        broadcast = Broadcast(delta, delta, {}, jnp.zeros((), jnp.int32), setup.algorithm.steps)
        return channel.send(channel.draw(key, delta), delta, broadcast, memory)

    return use, (keys, thetas), _clients(setup, state.clients.channel)[1]


def _sharing(setup: Setup, state: State, keys: Array, thetas: Theta) -> Built:
    def use(sharing: AbstractSharing, inputs: Inputs, own: PyTree) -> tuple[PyTree, PyTree]:
        client, _, theta = inputs
        shared = sharing.start(theta)
        sharing = sharing.of(shared, client, jnp.ones((), jnp.int32))
        own = sharing.choose(shared, own, client, squared_norm)
        before = sharing.local(shared, own, client)
        stepped = jax.tree.map(lambda leaf: leaf + 0.1 * jnp.sin(leaf), before)
        after = sharing.pull(stepped, shared, jnp.asarray(0.1, jax.tree.leaves(theta)[0].dtype))
        moved = jax.tree.map(jnp.subtract, after, before)
        met = sharing.meet(after)
        check_like(f"the model that {type(sharing).__name__} lets people meet", met, theta)
        sent = sharing.send(moved, shared, own, client)
        check_like(f"what {type(sharing).__name__} sends", sent, shared)
        return (met, sent), sharing.kept(after, own)

    clients, own = _clients(setup, state.clients.own)
    return use, (clients, keys, thetas), own


def _participation(setup: Setup, state: State, keys: Array, thetas: Theta) -> Built:
    def use(
        participation: AbstractParticipation, inputs: tuple[Array, Theta, Array], memory: PyTree
    ) -> tuple[Cohort, PyTree]:
        key, theta, round = inputs
        measure = functools.partial(measure_losses, setup, dataclasses.replace(state, theta=theta))
        selection = Selection(setup.weights, setup.tables, round, theta, measure)
        cohort, memory = participation.select(key, selection, memory)
        elapsed = jnp.asarray(cohort.elapsed, setup.weights.dtype)
        return dataclasses.replace(cohort, elapsed=elapsed), memory

    return use, (keys, thetas, jnp.arange(INSTANCES, dtype=jnp.int32)), _spread(state.server.participation)


def _aggregator(setup: Setup, state: State, keys: Array, thetas: Theta) -> Built:
    clients, dtype = setup.weights.shape[0], setup.weights.dtype
    present = min(3, clients)
    order = np.random.default_rng(0).permuted(np.tile(np.arange(clients), (INSTANCES, 1)), axis=1)[:, :present]
    ids = np.column_stack([order, np.full(INSTANCES, clients)])  # the last row is spare
    active = jnp.asarray(ids < clients)
    weight = jnp.asarray(np.where(ids < clients, [[*np.arange(1.0, present + 1), 0.0]], 0.0), dtype)
    cohorts = jax.vmap(Cohort)(jnp.asarray(ids, jnp.int32), weight / jnp.sum(weight, axis=1, keepdims=True), active)

    def uploads(key: Array, theta: Theta, cohort: Cohort) -> Upload:
        extra = setup.algorithm.aggregator.broadcast(state.server.aggregator)
        time = None if state.time is None else state.time.high
        broadcast = Broadcast(theta, theta, extra, state.round, setup.algorithm.steps, time=time)
        return Gather().run(setup, cohort, broadcast, state.clients, run_keys(key))[1]

    def use(
        aggregator: AbstractAggregator, inputs: tuple[Theta, Upload, Cohort, Array], memory: PyTree
    ) -> tuple[PyTree, PyTree]:
        theta, upload, cohort, weights = inputs
        move, memory = aggregator.aggregate(theta, upload, cohort, weights, memory)
        return (move, aggregator.broadcast(memory)), memory

    sent = quickly_compiled(jax.vmap(uploads))(keys, thetas, cohorts)
    weights = jnp.broadcast_to(setup.weights, (INSTANCES, clients))
    return use, (thetas, sent, cohorts, weights), _spread(state.server.aggregator)


def _schedule(setup: Setup, state: State, keys: Array, thetas: Theta) -> Built:
    return (lambda schedule, t, memory: (schedule(t), None)), jnp.asarray([0, 1, 1000], jnp.int32), None


def _domain(setup: Setup, state: State, keys: Array, thetas: Theta) -> Built:
    # Near the start, at a medium distance and far out.
    far = jax.tree.map(lambda v: v * jnp.asarray([1, 10, 1000], v.dtype).reshape(-1, *(1,) * (v.ndim - 1)), thetas)
    return (lambda domain, theta, memory: (domain.project(theta), None)), far, None


def _spread(memory: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (INSTANCES, *leaf.shape)), memory)


BUILDERS: dict[str, Callable[[Setup, State, Array, Theta], Built]] = {
    "population": _population,
    "estimator": _estimator,
    "participation": _participation,
    "channel": _channel,
    "aggregator": _aggregator,
    "sharing": _sharing,
    "batch": _batch,
    "schedule": _schedule,
    "domain": _domain,
}

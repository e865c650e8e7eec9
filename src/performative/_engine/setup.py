"""What the engine runs: a problem and an algorithm with their tables computed, and the initial state."""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.typing import DTypeLike
from jaxtyping import Array, PyTree

from performative._base.client_axis import client_axes, take_clients
from performative._engine.client import init_client
from performative._engine.clock import Clock
from performative._engine.compute import ALL_AT_ONCE, Compute
from performative._engine.metrics import is_own, own_metrics
from performative._engine.prepare import check_owners, check_rows, check_schedule, on_device
from performative._engine.programs import same_function
from performative._engine.sharding import filled, map_rows, place
from performative._engine.totals import zero_total
from performative.aggregators import AbstractAggregator
from performative.algorithm import Algorithm
from performative.estimators import AbstractEstimator
from performative.facts import chain
from performative.populations import AbstractPopulation
from performative.problem import Problem
from performative.record import Metric, Record
from performative.types import Broadcast, ClientMemory, Cohort, Local, Numbers, ServerMemory, State, Theta, Upload


class Setup(eqx.Module):
    """A prepared problem and algorithm: numbers on the device, explicit weights, tables computed.

    With a `mesh` the clients are distributed over its devices (see `sharding`). `clients` and `cohorts` as in `Record`;
    if `guarded`, metrics see only published models.
    """

    problem: Problem
    algorithm: Algorithm
    weights: Numbers
    tables: PyTree
    clock: Clock
    metrics: dict[str, Metric] = eqx.field(default_factory=dict)
    compute: Compute = ALL_AT_ONCE
    mesh: Mesh | None = eqx.field(static=True, default=None)
    clients: tuple[str, ...] = eqx.field(static=True, default=())
    cohorts: bool = eqx.field(static=True, default=False)
    guarded: bool = eqx.field(static=True, default=False)

    @property
    def asks_loss(self) -> bool:
        """Whether clients report the mean loss of their batches."""
        return self.algorithm.participation.requires_loss or "loss" in self.clients

    @property
    def remembered_rounds(self) -> int:
        """How many of the last broadcasts are kept; 0 if old ones are never used."""
        participation, deploy = self.algorithm.participation, self.algorithm.deploy
        oldest = max(participation.oldest(self.weights.shape[-1]), deploy.lag)
        return oldest + 1 if oldest else 0

    def takes(self, ids: Array) -> Array:
        """How long each of these clients trains, by the clock."""
        clients, E = self.weights.shape[-1], self.algorithm.steps
        listed = self.algorithm.participation.steps_of(clients, E)
        steps = np.full(clients, E) if listed is None else listed
        return self.clock.time(ids, jnp.asarray(steps, self.weights.dtype)[jnp.minimum(ids, clients - 1)])

    def lasts(self, asked: Cohort, steps: Array, dtype: DTypeLike) -> Array:
        """How long a round takes."""
        return self.clock.lasts(asked, steps, dtype, self.algorithm.participation.keeps_time)


def prepare(problem: Problem, algorithm: Algorithm, clock: Clock, record: Record | None = None) -> Setup:
    """Check that the parts work with this problem, and compute their tables. Still on the host."""
    check_owners(problem, algorithm)
    check_schedule(algorithm.rate)
    weights = np.asarray(problem.client_weights)
    algorithm.participation.check(weights)
    algorithm.aggregator.check(weights, algorithm.participation)
    check_rows(problem, algorithm)
    clock.check(len(weights))
    # Names are for people: in a compiled program they would only cause recompilation.
    problem = Problem(problem.loss, problem.population, problem.weights, problem.domain)
    sharing = algorithm.sharing.ready(weights)
    for part in chain(algorithm.estimator, AbstractEstimator):
        if part.learns_reaction and not sharing.trains_one:
            raise ValueError(
                f"sharing={type(sharing).__name__} with {type(part).__name__}: a client that trains two models has "
                "no single gradient of people's reaction; use PerClient, Groups or Heads, or an estimator such as "
                "Minibatch."
            )
        if part.keeps_samples and not sharing.trains_one:
            raise ValueError(
                f"sharing={type(sharing).__name__} with {type(part).__name__}: past samples responded to one model, "
                "but a client trains two; use PerClient, Groups or Heads, or an estimator such as Minibatch."
            )
        if part.needs_exploration and algorithm.deploy.explore is None:
            raise ValueError(
                f"estimator={type(part).__name__} learns from models deployed alongside the global one; pass "
                "deploy=pf.Explore(radius)."
            )
    if algorithm.deploy.lag and not sharing.is_one:
        raise ValueError(
            f"deploy=pf.Late({algorithm.deploy.lag}) with sharing={type(sharing).__name__}: clients' past personal "
            "models are not kept; use sharing=pf.sharing.OneModel()."
        )
    if algorithm.deploy.explore is not None and not sharing.is_one:
        raise ValueError(
            f"deploy=pf.Explore(...) with sharing={type(sharing).__name__}: exploration perturbs the one model that "
            "all clients share; use sharing=pf.sharing.OneModel()."
        )
    if algorithm.absent == "reacts" and algorithm.participation.oldest(len(weights)):
        raise ValueError(
            f'absent="reacts" with {type(algorithm.participation).__name__}: people of a client in training would '
            'respond to newer models than the one it trains; leave absent at "frozen".'
        )
    if sharing.counts_entries and algorithm.participation.oldest(len(weights)):
        raise ValueError(
            f"sharing={type(sharing).__name__} with {type(algorithm.participation).__name__}: which part of the "
            "model a client trains depends on the round, but updates come from older ones; use synchronous rounds."
        )
    last = chain(algorithm.aggregator, AbstractAggregator)[-1]
    if sharing.counts_entries and not last.uses_sums_only:
        raise ValueError(
            f"sharing={type(sharing).__name__} with {type(last).__name__}: clients train different entries, and it "
            "would treat the others as updates of 0; use pf.aggregators.Mean(), alone or inside another."
        )
    algorithm = dataclasses.replace(algorithm, name="", from_data=(), sharing=sharing)
    record, tables = Record() if record is None else record, algorithm.participation.tables(weights)
    for name in record.metrics:
        if is_own(name):
            raise ValueError(f"metrics: {name!r} is recorded already; give yours another name.")
    metrics = own_metrics(record) | {name: _known(metric) for name, metric in record.metrics.items()}
    return Setup(problem, algorithm, weights, tables, clock, metrics, clients=record.clients, cohorts=record.cohorts)


def _known(metric: Metric) -> Metric:
    """The metric with an equal function seen before, if any, so its compiled program is reused."""
    return eqx.tree_at(lambda m: m.function, metric, same_function(metric.function, "metric"), is_leaf=callable)


def on_mesh(setup: Setup, dtype: DTypeLike, mesh: Mesh) -> Setup:
    """The setup over many devices: the clients' data distributed, all else replicated. Straight from the host."""

    def move(axis: int | None, tree: PyTree) -> Any:
        return on_device(tree, dtype, functools.partial(place, mesh=mesh, axis=axis))

    population = setup.problem.population
    dealt = jax.tree.map(move, client_axes(population), population, is_leaf=lambda axis: axis is None)
    rest = move(None, eqx.tree_at(lambda s: s.problem.population, setup, None))
    made = eqx.tree_at(lambda s: s.problem.population, rest, dealt, is_leaf=lambda node: node is None)
    return dataclasses.replace(made, mesh=mesh)


def init_state(setup: Setup, theta: Theta, count_participation: bool) -> State:
    """The state at round 0: theta is the deployed model."""
    population, clients = setup.problem.population, setup.weights.shape[0]
    theta = setup.algorithm.sharing.start(theta)
    arrays, rest = eqx.partition(population, eqx.is_array)

    time = zero_total((), setup.weights.dtype) if population.reads_time else None

    def one(problem: Problem, algorithm: Algorithm, theta: Theta, rows: PyTree, client: Array) -> ClientMemory:
        now = None if time is None else time.high
        return init_client(problem, algorithm, eqx.combine(rows, rest), theta, now, client)

    bare = eqx.tree_at(lambda p: p.population, setup.problem, None)
    shared = eqx.Partial(one, bare, setup.algorithm, theta)
    rows = filled(clients, setup.mesh)
    ids = jnp.minimum(jnp.arange(rows, dtype=jnp.int32), clients - 1)
    memory = map_rows(shared, (client_axes(arrays), 0), None, rows, setup.mesh)(arrays, ids)
    server = ServerMemory(
        setup.algorithm.participation.init(clients),
        setup.algorithm.aggregator.init(theta, clients, _shape_of_extra(setup, theta, memory)),
        setup.algorithm.sharing.tally(theta, setup.weights),
    )
    counts = zero_total((clients,), setup.weights.dtype) if count_participation else None
    past, rows = None, setup.remembered_rounds
    if rows:
        now = None if time is None else time.high
        sent = theta, theta, setup.algorithm.aggregator.broadcast(server.aggregator), now
        past = jax.tree.map(lambda leaf: jnp.zeros((rows, *jnp.shape(leaf)), jnp.result_type(leaf)), sent)
    return State(theta, theta, memory, server, jnp.zeros((), jnp.int32), counts, time, past)


def _shape_of_extra(setup: Setup, theta: Theta, memory: ClientMemory) -> dict[str, Any]:
    """What a client adds to its upload, as shapes: the server allocates it before the first round."""
    algorithm, zero = setup.algorithm, jnp.zeros((), jnp.int32)

    def finished(population: AbstractPopulation, mine: ClientMemory) -> dict[str, Any]:
        sharing = algorithm.sharing
        model = sharing.local(theta, mine.own, zero)
        broadcast = Broadcast(model, sharing.meet(model), {}, zero, algorithm.steps)
        loss = sharing.loss(setup.problem.loss)
        local = Local(loss, population, mine.world, broadcast.deployed, broadcast, zero, algorithm.eta(zero))
        return algorithm.estimator.finish(Upload(model, zero, {}, {}), local, mine.estimator)[0]

    population, axes = take_clients(setup.problem.population, jnp.zeros((1,), jnp.int32))
    arrays, rest = eqx.partition(population, eqx.is_array)
    first = jax.tree.map(lambda leaf: leaf[:1], memory)
    each = jax.vmap(lambda rows, mine: finished(eqx.combine(rows, rest), mine), in_axes=(axes, 0), axis_size=1)
    shapes = jax.eval_shape(each, arrays, first)
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), shapes)

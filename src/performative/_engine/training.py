"""The pieces of one client's round: where it starts, one local step, and what it sends.

`client_round` runs the steps in a loop; `performative.moments` takes them one by one.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from performative._base.checks import check_like
from performative._engine.compute import ALL_AT_ONCE, Compute
from performative.algorithm import Algorithm
from performative.deploy import Deployment
from performative.populations import AbstractPopulation
from performative.populations.base import collect
from performative.problem import Problem
from performative.sharing.base import AbstractSharing
from performative.types import Broadcast, ClientMemory, Draws, Local, Scene, Theta, Upload, masked_mean


class Training:
    """A client's round, with everything prepared except the steps themselves.

    Attributes:
        start: what a step carries at the start: model, world, the estimator's memory
        inputs: what each step reads, with a leading axis of E
        noise: the data's random numbers, one long row per step
    """

    def __init__(
        self, problem: Problem, algorithm: Algorithm, population: AbstractPopulation, broadcast: Broadcast,
        memory: ClientMemory, drawn: Draws, steps: Int[Array, ""] | None = None, client: Int[Array, ""] | None = None,
        compute: Compute = ALL_AT_ONCE, asks_loss: bool = False, pace: Any = 1.0,
    ):  # fmt: skip
        E, deploy, shared = algorithm.steps, algorithm.deploy, broadcast.theta
        self.problem, self.algorithm, self.population, self.broadcast = problem, algorithm, population, broadcast
        self.memory, self.drawn, self.steps, self.client, self.pace = memory, drawn, steps, client, pace
        self.sharing = sharing = algorithm.sharing.of(shared, client, broadcast.round)
        self.loss = loss = compute.loss(problem.loss)
        self.training_loss = sharing.loss(compute.training_loss(problem.loss))
        assert drawn.data is not None
        noise, mask = drawn.data
        world = memory.world

        def measure(model: Theta) -> Array:
            some, real = jax.tree.map(lambda leaf: leaf[0], (noise, mask))
            z = collect(population, some, real, world, sharing.meet(sharing.local(shared, memory.own, client))).z
            return masked_mean(jax.vmap(loss, in_axes=(None, 0))(model, z), real)

        self.own = sharing.choose(shared, memory.own, client, measure)
        self.begin = sharing.local(shared, self.own, client)
        self.met, self.seen = met_model(sharing, deploy, broadcast, self.own, memory.seen, client)
        models = broadcast.models
        self.player = None if models is None or client is None else sharing.player(client)
        if not deploy.each_step:
            world = population.deploy(world, Scene(self.met, loss, broadcast.time, models, self.player))
        self.expected = algorithm.batch.expected(population)
        self.asks_loss = asks_loss or algorithm.participation.requires_loss
        self.known: dict[str, int] = {}  # counts that need not go through the loop
        # For estimators the model is what the client trains.
        self.told = eqx.tree_at(lambda sent: (sent.theta, sent.deployed), broadcast, (self.begin, self.met))
        self.start = (self.begin, world, memory.estimator)
        # One long row per step: on a CPU, compiled code is slow at writing random numbers in short rows.
        self.shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), noise)
        self.noise = jax.tree.map(lambda leaf: leaf.reshape(E, -1), noise)
        each_step = jnp.asarray(np.arange(E, dtype=np.int32))
        rates = jax.vmap(algorithm.eta)(broadcast.clock + each_step)
        self.inputs = (each_step, rates, self.noise, mask, drawn.estimator)

    def local(self, theta: Theta, world: PyTree, e: Array, rate: Array) -> Local:
        """What the client knows at step e."""
        deployed = self.sharing.meet(theta) if self.algorithm.deploy.each_step else self.met
        clock = self.broadcast.clock + e
        return Local(
            self.training_loss, self.population, world, deployed, self.told, clock, rate, self.client, self.expected,
            self.player,
        )  # fmt: skip

    def respond(self, theta: Theta, world: PyTree, e: Array) -> PyTree:
        """The world at step e: if every step is deployed, people respond to the client's current model."""
        if not self.algorithm.deploy.each_step:
            return world
        sent = self.broadcast
        now = None if sent.time is None else sent.time + e.astype(sent.time.dtype) * self.pace
        return self.population.deploy(world, Scene(self.sharing.meet(theta), self.loss, now, sent.models, self.player))

    def step(self, carry: PyTree, inputs: PyTree) -> tuple[Any, Any]:
        """Deploy, sample, estimate, step, project; also return the counts."""
        theta, world, estimator_memory = carry
        e, rate, noise, mask, extra = inputs
        algorithm, broadcast, sharing = self.algorithm, self.broadcast, self.sharing
        noise = jax.tree.map(lambda row, shape: row.reshape(shape.shape), noise, self.shapes)
        world = self.respond(theta, world, e)
        here = self.local(theta, world, e, rate)
        batch = collect(self.population, noise, mask, world, here.deployed)
        out = algorithm.estimator.estimate(extra, theta, batch, here, estimator_memory)
        check_like(f"the direction of {type(algorithm.estimator).__name__}", out.direction, theta)
        moved = jax.tree.map(lambda v, g: v - here.rate.astype(v.dtype) * g, theta, out.direction)
        moved = sharing.pull(moved, broadcast.theta, here.rate)
        if self.problem.domain is not None:
            moved = sharing.each(self.problem.domain.project, moved)
        self.known.update({name: count for name, count in out.metrics.items() if isinstance(count, int)})
        counted = {name: count for name, count in out.metrics.items() if name not in self.known}
        if self.asks_loss:
            each = jax.vmap(self.loss, in_axes=(None, 0))(sharing.meet(theta), batch.z)
            counted["loss"] = masked_mean(each, mask)
        after = (moved, world, out.memory)
        if self.steps is not None:  # a client that is done keeps its model
            working = e < self.steps
            after = jax.tree.map(lambda new, old: jnp.where(working, new, old), after, carry)
            counted = jax.tree.map(lambda c: jnp.where(working, c, jnp.zeros_like(c)), counted)
        return after, counted

    def finish(self, carry: PyTree, counted: dict[str, Any]) -> tuple[Upload, ClientMemory]:
        """What the client sends and remembers after its last step."""
        theta, world, estimator_memory = carry
        algorithm, broadcast, sharing, memory = self.algorithm, self.broadcast, self.sharing, self.memory
        done = jnp.asarray(algorithm.steps, jnp.int32) if self.steps is None else self.steps
        mean_loss = None
        if self.asks_loss:
            total = counted.pop("loss")
            mean_loss = total / done.astype(total.dtype)
        counted |= {name: count * done for name, count in self.known.items()}
        delta = jax.tree.map(jnp.subtract, theta, self.begin)
        draft, end = Upload(delta, done, None, counted), jnp.asarray(algorithm.steps, jnp.int32)
        extra, estimator_memory = algorithm.estimator.finish(
            draft, self.local(theta, world, end, algorithm.eta(broadcast.clock + end)), estimator_memory
        )
        delta = sharing.send(delta, broadcast.theta, self.own, self.client)
        sent, channel_memory = algorithm.channel.send(self.drawn.channel, delta, broadcast, memory.channel)
        check_like(f"what {type(algorithm.channel).__name__} sends", sent, delta)
        counted |= algorithm.channel.totals(delta)
        batch_memory, own = algorithm.batch.advance(memory.batch, done), sharing.kept(theta, self.own)
        after_memory = ClientMemory(world, batch_memory, estimator_memory, channel_memory, own, self.seen)
        drift = self.population.world_metrics(memory.world, world)
        return Upload(
            sent, done, extra, counted, effective_step(algorithm, broadcast, done), mean_loss, drift
        ), after_memory


def met_model(
    sharing: AbstractSharing, deploy: Deployment, broadcast: Broadcast, own: PyTree, seen: PyTree,
    client: Int[Array, ""] | None,
) -> tuple[Theta, PyTree]:  # fmt: skip
    """The model that a client's people see in a round, and the new `seen`."""
    if seen is not None:
        seen = deploy.next(seen, own, broadcast.round)
    local = sharing.local(broadcast.deployed, own if seen is None else seen, client)
    return sharing.meet(local), seen


def effective_step(algorithm: Algorithm, broadcast: Broadcast, done: Int[Array, ""]) -> Array:
    """How far the local model would have moved had every gradient been 1. Not computed unless used."""

    def step(carry: PyTree, e: Array) -> tuple[Any, None]:
        gone, inside = carry
        unit, after = algorithm.estimator.step_response(gone, inside)
        rate = algorithm.eta(broadcast.clock + e)
        moved = gone + rate * unit.astype(rate.dtype)
        return jax.tree.map(lambda new, old: jnp.where(e < done, new, old), (moved, after), carry), None

    zero = jnp.zeros_like(algorithm.eta(broadcast.clock))
    start = (zero, jax.tree.map(lambda leaf: jnp.asarray(leaf, zero.dtype), algorithm.estimator.unit_start()))
    return jax.lax.scan(step, start, jnp.arange(algorithm.steps, dtype=jnp.int32))[0][0]

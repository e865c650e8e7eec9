"""What one client does in one round. The same function serves simulation and a live federation."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from performative._base.checks import check_like
from performative._engine.compute import ALL_AT_ONCE, Compute
from performative._engine.keys import ClientKeys
from performative._engine.unroll import unrolled
from performative.algorithm import Algorithm
from performative.deploy import Deployment
from performative.populations import AbstractPopulation
from performative.populations.base import collect
from performative.problem import Problem
from performative.sharing.base import AbstractSharing, blank_local
from performative.types import Broadcast, ClientMemory, Draws, Local, Scene, Theta, Upload, masked_mean

# Random numbers of one client's step from which on it pays to write them down.
_MANY = 1024


def init_client(
    problem: Problem, algorithm: Algorithm, population: AbstractPopulation, theta: Theta, time: Array | None = None,
    client: Array | None = None,
) -> ClientMemory:  # fmt: skip
    """The memory of one client, when theta (what the server keeps) is the first model that the world sees."""
    sharing, deploy = algorithm.sharing.of(theta, client, jnp.zeros((), jnp.int32)), algorithm.deploy
    own = sharing.keep(sharing.one(theta))
    local = sharing.local(theta, own, client)
    return ClientMemory(
        world=population.init(Scene(sharing.meet(local), problem.loss, time)),
        batch=algorithm.batch.init(),
        estimator=algorithm.estimator.init(local, population, sharing.loss(problem.loss)),
        channel=algorithm.channel.init(theta),
        own=own,
        seen=None if deploy.each_step or deploy.period == 1 else own,
    )


def client_round(
    problem: Problem,
    algorithm: Algorithm,
    population: AbstractPopulation,
    broadcast: Broadcast,
    memory: ClientMemory,
    keys: ClientKeys,
    steps: Int[Array, ""] | None = None,
    client: Int[Array, ""] | None = None,
    drawn: Draws | None = None,
    compute: Compute = ALL_AT_ONCE,
    asks_loss: bool = False,
    pace: Any = 1.0,
) -> tuple[Upload, ClientMemory]:
    """E local steps of one client: deploy, sample, estimate, step, project.

        theta_i <- P(theta_i - eta_t v(theta_i; Z)),   Z ~ D_i(deployed),   t = round * E + e

    `population` is the client's own slice, `keys` its own keys, `client` its number. `steps` is tau_i <= E, None for
    all E. `drawn` takes the place of numbers that would come from the keys. With `asks_loss` the client tells
    the mean loss of its batches. `pace` is the simulated time that one of its steps takes.
    """
    E, deploy, shared = algorithm.steps, algorithm.deploy, broadcast.theta
    sharing = algorithm.sharing.of(shared, client, broadcast.round)
    loss, training_loss = compute.loss(problem.loss), sharing.loss(compute.training_loss(problem.loss))
    ready = draw_for_client(algorithm, population, shared, keys, memory.batch, drawn)
    assert ready.data is not None
    noise, mask = ready.data
    world = memory.world

    def measure(model: Theta) -> Array:
        some, real = jax.tree.map(lambda leaf: leaf[0], (noise, mask))
        z = collect(population, some, real, world, sharing.meet(sharing.local(shared, memory.own, client))).z
        return masked_mean(jax.vmap(loss, in_axes=(None, 0))(model, z), real)

    own = sharing.choose(shared, memory.own, client, measure)
    begin = sharing.local(shared, own, client)
    met, seen = met_model(sharing, deploy, broadcast, own, memory.seen, client)
    models = broadcast.models
    player = None if models is None or client is None else sharing.player(client)
    if not deploy.each_step:
        world = population.deploy(world, Scene(met, loss, broadcast.time, models, player))

    expected = algorithm.batch.expected(population)
    asks_loss = asks_loss or algorithm.participation.requires_loss
    known: dict[str, int] = {}  # counts that need not go through the loop

    def local(theta: Theta, world: PyTree, e: Array, rate: Array) -> Local:
        deployed = sharing.meet(theta) if deploy.each_step else met
        clock = broadcast.clock + e
        return Local(training_loss, population, world, deployed, told, clock, rate, client, expected, player)

    def step(carry: PyTree, inputs: PyTree) -> tuple[Any, Any]:
        theta, world, estimator_memory = carry
        e, rate, step_noise, step_mask, step_extra = inputs
        step_noise = jax.tree.map(lambda row, shape: row.reshape(shape.shape), step_noise, shapes)
        if deploy.each_step:
            now = None if broadcast.time is None else broadcast.time + e.astype(broadcast.time.dtype) * pace
            world = population.deploy(world, Scene(sharing.meet(theta), loss, now, models, player))
        here = local(theta, world, e, rate)
        batch = collect(population, step_noise, step_mask, world, here.deployed)
        out = algorithm.estimator.estimate(step_extra, theta, batch, here, estimator_memory)
        check_like(f"the direction of {type(algorithm.estimator).__name__}", out.direction, theta)
        moved = jax.tree.map(lambda v, g: v - here.rate.astype(v.dtype) * g, theta, out.direction)
        moved = sharing.pull(moved, shared, here.rate)
        if problem.domain is not None:
            moved = sharing.each(problem.domain.project, moved)
        known.update({name: count for name, count in out.metrics.items() if isinstance(count, int)})
        counted = {name: count for name, count in out.metrics.items() if name not in known}
        if asks_loss:
            counted["loss"] = masked_mean(jax.vmap(loss, in_axes=(None, 0))(sharing.meet(theta), batch.z), step_mask)
        after = (moved, world, out.memory)
        if steps is not None:  # a client that is done stays where it is
            working = e < steps
            after = jax.tree.map(lambda new, old: jnp.where(working, new, old), after, carry)
            counted = jax.tree.map(lambda c: jnp.where(working, c, jnp.zeros_like(c)), counted)
        return after, counted

    # To estimators the model is what the client trains.
    told = eqx.tree_at(lambda sent: (sent.theta, sent.deployed), broadcast, (begin, met))
    start = (begin, world, memory.estimator)
    # One long row a step: a compiler on a CPU makes slow work of random numbers that it writes in short rows.
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), noise)
    noise = jax.tree.map(lambda leaf: leaf.reshape(E, -1), noise)
    each_step = jnp.asarray(np.arange(E, dtype=np.int32))
    rates = jax.vmap(algorithm.eta)(broadcast.clock + each_step)
    inputs = (each_step, rates, noise, mask, ready.estimator)
    if E > 1:
        after, each = jax.lax.scan(step, start, inputs, unroll=unrolled(step, start, inputs, E))
        counted = jax.tree.map(lambda c: jnp.sum(c, axis=0), each)
    elif sum(leaf.size for leaf in jax.tree.leaves(noise)) < _MANY:
        after, counted = step(start, jax.tree.map(lambda leaf: leaf[0], inputs))
    else:
        after, counted = _written_step(step, start, inputs, broadcast.round)
    theta, world, estimator_memory = after

    done = jnp.asarray(E, jnp.int32) if steps is None else steps
    mean_loss = None
    if asks_loss:
        total = counted.pop("loss")
        mean_loss = total / done.astype(total.dtype)
    counted |= {name: count * done for name, count in known.items()}
    delta = jax.tree.map(jnp.subtract, theta, begin)
    draft, end = Upload(delta, done, None, counted), jnp.asarray(E, jnp.int32)
    extra, estimator_memory = algorithm.estimator.finish(
        draft, local(theta, world, end, algorithm.eta(broadcast.clock + end)), estimator_memory
    )
    delta = sharing.send(delta, shared, own, client)
    sent, channel_memory = algorithm.channel.send(ready.channel, delta, broadcast, memory.channel)
    check_like(f"what {type(algorithm.channel).__name__} sends", sent, delta)
    counted |= algorithm.channel.totals(delta)
    batch_memory, own = algorithm.batch.advance(memory.batch, done), sharing.kept(theta, own)
    after_memory = ClientMemory(world, batch_memory, estimator_memory, channel_memory, own, seen)
    drift = population.world_metrics(memory.world, world)
    return Upload(
        sent, done, extra, counted, effective_step(algorithm, broadcast, done), mean_loss, drift
    ), after_memory


def met_model(
    sharing: AbstractSharing, deploy: Deployment, broadcast: Broadcast, own: PyTree, seen: PyTree,
    client: Int[Array, ""] | None,
) -> tuple[Theta, PyTree]:  # fmt: skip
    """The model that a client's people meet in a round, and `seen` from then on."""
    if seen is not None:
        seen = deploy.next(seen, own, broadcast.round)
    local = sharing.local(broadcast.deployed, own if seen is None else seen, client)
    return sharing.meet(local), seen


def draw_for_client(
    algorithm: Algorithm,
    population: AbstractPopulation,
    theta: Theta,
    keys: ClientKeys,
    memory: PyTree,
    drawn: Draws | None = None,
) -> Draws:
    """All random numbers of one client's round. No part sees more of the model than its shape."""
    blank, drawn = jax.tree.map(jnp.zeros_like, theta), Draws() if drawn is None else drawn
    local = blank_local(algorithm.sharing, blank)
    met = algorithm.sharing.meet(local)
    data, estimator, channel = drawn.data, drawn.estimator, drawn.channel
    if data is None:
        data = algorithm.batch.draw(keys.data, keys.standing, population, met, algorithm.steps, memory)
    if estimator is None:
        estimator = algorithm.estimator.draw(keys.estimator, algorithm.steps, local)
    return Draws(data, estimator, algorithm.channel.draw(keys.channel, blank) if channel is None else channel)


def effective_step(algorithm: Algorithm, broadcast: Broadcast, done: Int[Array, ""]) -> Array:
    """How far the local model would have gone, had every gradient been 1. Where nobody asks, it is not computed."""

    def step(carry: PyTree, e: Array) -> tuple[Any, None]:
        gone, inside = carry
        unit, after = algorithm.estimator.step_response(gone, inside)
        rate = algorithm.eta(broadcast.clock + e)
        moved = gone + rate * unit.astype(rate.dtype)
        return jax.tree.map(lambda new, old: jnp.where(e < done, new, old), (moved, after), carry), None

    zero = jnp.zeros_like(algorithm.eta(broadcast.clock))
    start = (zero, jax.tree.map(lambda leaf: jnp.asarray(leaf, zero.dtype), algorithm.estimator.unit_start()))
    return jax.lax.scan(step, start, jnp.arange(algorithm.steps, dtype=jnp.int32))[0][0]


def _written_step(
    step: Callable[..., tuple[PyTree, PyTree]], start: PyTree, inputs: PyTree, round: Int[Array, ""]
) -> tuple[Any, Any]:
    """step(start, inputs of the only step), after its random numbers have been written to memory.

    Left to itself the compiler works them out anew in each pass over the samples. It cannot where they are looked up
    in a loop whose length it does not know (min(round + 1, 1) is 1), at a place that depends on the loop's counter.
    """
    e, rate, noise, *rest = jax.tree.map(lambda leaf: leaf[0], inputs)
    longer = jax.tree.map(lambda row: jnp.concatenate([row, row[:1]]), noise)

    def once(i: Array, last: PyTree) -> Any:
        rows = jax.tree.map(lambda row: jax.lax.dynamic_slice(row, (i,), (row.shape[0] - 1,)), longer)
        return step(last[0], (e, rate, rows, *rest))

    counts = jax.eval_shape(lambda: step(start, (e, rate, noise, *rest))[1])
    zeros = jax.tree.map(lambda count: jnp.zeros(count.shape, count.dtype), counts)
    return jax.lax.fori_loop(0, jnp.minimum(round + 1, 1), once, (start, zeros))

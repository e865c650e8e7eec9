"""What one client does in one round. The same function serves simulation and a live federation."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from performative._engine.compute import ALL_AT_ONCE, Compute
from performative._engine.keys import ClientKeys
from performative._engine.training import Training
from performative._engine.unroll import unrolled
from performative.algorithm import Algorithm
from performative.populations import AbstractPopulation
from performative.problem import Problem
from performative.sharing.base import blank_local
from performative.types import Broadcast, ClientMemory, Draws, Scene, Theta, Upload

# From this many random numbers per client step on, writing them to memory pays off.
_MANY = 1024


def init_client(
    problem: Problem, algorithm: Algorithm, population: AbstractPopulation, theta: Theta, time: Array | None = None,
    client: Array | None = None,
) -> ClientMemory:  # fmt: skip
    """The initial memory of one client; theta (what the server keeps) is the first model that the world sees."""
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

    `population` is the client's own slice, `keys` its own keys, `client` its index. `steps` is tau_i <= E, None for all
    E. `drawn` replaces the numbers that would come from the keys. With `asks_loss` the client reports the mean loss of
    its batches. `pace` is the simulated time that one of its steps takes.
    """
    ready = draw_for_client(algorithm, population, broadcast.theta, keys, memory.batch, drawn)
    training = Training(
        problem, algorithm, population, broadcast, memory, ready, steps, client, compute, asks_loss, pace
    )
    E, (start, inputs) = algorithm.steps, (training.start, training.inputs)
    if E > 1:
        after, each = jax.lax.scan(training.step, start, inputs, unroll=unrolled(training.step, start, inputs, E))
        counted = jax.tree.map(lambda c: jnp.sum(c, axis=0), each)
    elif sum(leaf.size for leaf in jax.tree.leaves(training.noise)) < _MANY:
        after, counted = training.step(start, jax.tree.map(lambda leaf: leaf[0], inputs))
    else:
        after, counted = _written_step(training.step, start, inputs, broadcast.round)
    return training.finish(after, counted)


def draw_for_client(
    algorithm: Algorithm,
    population: AbstractPopulation,
    theta: Theta,
    keys: ClientKeys,
    memory: PyTree,
    drawn: Draws | None = None,
) -> Draws:
    """All random numbers of one client's round. Parts see only the shape of the model."""
    blank, drawn = jax.tree.map(jnp.zeros_like, theta), Draws() if drawn is None else drawn
    local = blank_local(algorithm.sharing, blank)
    met = algorithm.sharing.meet(local)
    data, estimator, channel = drawn.data, drawn.estimator, drawn.channel
    if data is None:
        data = algorithm.batch.draw(keys.data, keys.standing, population, met, algorithm.steps, memory)
    if estimator is None:
        estimator = algorithm.estimator.draw(keys.estimator, algorithm.steps, local)
    return Draws(data, estimator, algorithm.channel.draw(keys.channel, blank) if channel is None else channel)


def _written_step(
    step: Callable[..., tuple[PyTree, PyTree]], start: PyTree, inputs: PyTree, round: Int[Array, ""]
) -> tuple[Any, Any]:
    """step(start, inputs of the only step), after its random numbers have been written to memory.

    Otherwise the compiler recomputes them in each pass over the samples. It cannot if they are looked up in a loop of
    unknown length (min(round + 1, 1) is 1), at an index that depends on the loop counter.
    """
    e, rate, noise, *rest = jax.tree.map(lambda leaf: leaf[0], inputs)
    longer = jax.tree.map(lambda row: jnp.concatenate([row, row[:1]]), noise)

    def once(i: Array, last: PyTree) -> Any:
        rows = jax.tree.map(lambda row: jax.lax.dynamic_slice(row, (i,), (row.shape[0] - 1,)), longer)
        return step(last[0], (e, rate, rows, *rest))

    counts = jax.eval_shape(lambda: step(start, (e, rate, noise, *rest))[1])
    zeros = jax.tree.map(lambda count: jnp.zeros(count.shape, count.dtype), counts)
    return jax.lax.fori_loop(0, jnp.minimum(round + 1, 1), once, (start, zeros))

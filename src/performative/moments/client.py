"""A client's round as a random affine map, from the engine's own pieces: start, steps, finish.

    g = (1, s, r_i, y),      y <- A(u) g   at each step,      A(u) = mean + deviation,   u the sample's randomness

s is shared by all clients, r_i is kept for client i, y is carried by its steps. Samples of a step are averaged, so the
variance of a batch's deviation is that of one sample over its size.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from performative._base.client_axis import put_rows
from performative._engine.round import close_round, make_broadcast
from performative._engine.setup import Setup
from performative._engine.steps import client_slice
from performative._engine.training import Training
from performative.moments.layout import Layout, flat_like
from performative.types import Cohort, Draws, State, Upload

# Nodes processed together.
_AT_ONCE = 256
# Products of entries stored per client step, if there is room for this many for all clients and steps.
PAIRS = 1 << 22


class Rules(eqx.Module):
    """Randomness of one client as nodes and weights: of one sample, and of its channel's draws.

    `spread` is the variance of a batch's mean over that of one sample; `adds` says for samples and channel whether
    their noise is additive (independent of the model); `moves` whether the weights of samples depend on the model, with
    a rule of `nodes` nodes; `room` is the space for products of their entries.
    """

    data: PyTree
    weight: Float[Array, " J"]
    channel: PyTree
    channel_weight: Float[Array, " L"]
    spread: Float[Array, ""]
    adds: tuple[bool, bool] = eqx.field(static=True, default=(False, False))
    moves: bool = eqx.field(static=True, default=False)
    nodes: int = eqx.field(static=True, default=0)
    room: int = eqx.field(static=True, default=PAIRS)

    def sample(self, j: Array | int) -> PyTree:
        return jax.tree.map(lambda leaf: leaf[j], self.data)

    def drawn(self, j: Array | int) -> PyTree:
        return jax.tree.map(lambda leaf: leaf[j], self.channel)


class Deviations(eqx.Module):
    """The effect of random matrices D_j [y, g] with weights w_j on second moments, M -> sum_j w_j D_j M D_j^T.

    In one of three forms: the covariance of what they add to y, independent of g; the matrices; or, if there are many,
    all products of their entries.
    """

    added: Float[Array, "y y"] | None
    nodes: tuple[Float[Array, "J y g"], Float[Array, " J"]] | None
    pairs: Float[Array, "y y g g"] | None

    def spread(self, M: Float[Array, "g g"]) -> Float[Array, "y y"]:
        if self.added is not None:
            return self.added * M[0, 0]
        if self.nodes is not None:
            D, weight = self.nodes
            return jnp.einsum("j,jag,gh,jbh->ab", weight, D, M, D)
        return jnp.einsum("abgh,gh->ab", self.pairs, M)


def deviations(nodes: Float[Array, "J y g"], weight: Float[Array, " J"], room: int) -> Deviations:
    """In the cheapest form, unless it takes more numbers than there is room for."""
    count, y, g = nodes.shape
    if count <= y or (y * g) ** 2 > room:
        return Deviations(None, (nodes, weight), None)
    return Deviations(None, None, jnp.einsum("j,jag,jbh->abgh", weight, nodes, nodes))


class TrainingMap(eqx.Module):
    """What client i sends and remembers after its round, as a function of c = (1, s, r_i).

        y_0 = start c,      y' = (step + deviation) g   at each step,      sent = (finish + deviation) g

    Deviations are those of a batch's samples at each step, [E, ...], and of the channel's draws.
    """

    start: Float[Array, "y c"]
    step: Float[Array, "E y g"]
    deviation: Deviations
    finish: Float[Array, "o g"]
    sent_deviation: Deviations


def training_map(run: "OneClient", s0: Array, r0: Array, rules: Rules) -> tuple[TrainingMap, PyTree, Array]:
    """The map linearized at (s, r): exact if it is affine. And what is sent there, as a tree and as a vector."""
    some = rules.sample(0)
    start = affine(lambda s, r: run.start(some, s, r)[0], s0, r0)
    y0, still = run.start(some, s0, r0)

    def one_step(carry: tuple[Array, PyTree], e: Array) -> tuple[tuple[Array, PyTree], tuple[Array, Deviations]]:
        y0, still = carry

        def with_sample(j: Array | int, *g: Array) -> Array:
            return run.step(e, rules.sample(j), still, *g)[0]

        mean, deviation = averaged(with_sample, rules.weight, rules.spread, rules.adds[0], rules.room, s0, r0, y0)
        if rules.moves:
            mean = mean + by_chances(with_sample, partial(run.chances, e, some, still, rules.nodes), s0, r0, y0)
        after = run.step(e, some, still, s0, r0, y0)[1]
        return (mean @ extended(s0, r0, y0), after), (mean, deviation)

    each_step = jnp.arange(run.setup.algorithm.steps, dtype=jnp.int32)
    (y0, still), (step, deviation) = jax.lax.scan(one_step, (y0, still), each_step)

    finish, apart = averaged(
        lambda j, *g: run.finish(some, rules.drawn(j), still, *g)[0], rules.channel_weight, jnp.ones(()), rules.adds[1],
        rules.room, s0, r0, y0,
    )  # fmt: skip
    form = run.finish(some, rules.drawn(0), still, s0, r0, y0)[1]
    made_of = TrainingMap(start, step, deviation, finish, apart)
    return made_of, form, finish @ extended(s0, r0, y0)


def effect_map(run: "OneClient", s0: Array, r0: Array, o0: Array, form: PyTree) -> tuple[Array, Array]:
    """The server's map of (1, s, r_i, sent): with z and with a, [2, c, c + o]; and of (1, s, r_i) without it."""
    absent = affine(lambda *g: run.close(form, 0.0, False, *g), s0, r0, o0)
    present, weighed = (affine(lambda *g, a=a: run.close(form, a, True, *g), s0, r0, o0) for a in (0.0, 1.0))
    return jnp.stack([present - absent, weighed - present]), absent[:, : 1 + len(s0) + len(r0)]


def averaged(
    function: Callable[..., Array], weight: Float[Array, " J"], spread: Array, adds: bool, room: int, *at: Array
) -> tuple[Array, Deviations]:
    """The mean over nodes j of function(j, arguments ...) as a matrix, and its deviations, with scaled variance.

    If it `adds`, the slope is the same at all nodes, so one suffices.
    """
    count = jnp.arange(len(weight))
    if not adds:
        nodes = jax.lax.map(lambda j: affine(partial(function, j), *at), count, batch_size=_AT_ONCE)
        mean = jnp.tensordot(weight, nodes, 1)
        return mean, deviations(nodes - mean, weight * spread, room)
    values = jax.lax.map(lambda j: function(j, *at), count, batch_size=_AT_ONCE)
    mean = jnp.tensordot(weight, values, 1)
    away = values - mean
    return affine(partial(function, 0), *at).at[:, 0].add(mean - values[0]), Deviations(
        (away.T * (weight * spread)) @ away, None, None
    )


def by_chances(function: Callable[..., Array], chances: Callable[..., Array], s0: Array, r0: Array, y0: Array) -> Array:
    """The change of sum_j w_j function(j, ...) through the probabilities w_j: a matrix on (1, s, r, y)."""
    slopes = affine(chances, s0, r0, y0)
    slopes = slopes.at[:, 0].add(-slopes @ extended(s0, r0, y0))  # zero at the linearization point
    values = jax.lax.map(lambda j: function(j, s0, r0, y0), jnp.arange(len(slopes)), batch_size=_AT_ONCE)
    return values.T @ slopes


def multiplied(run: "OneClient", s0: Array, r0: Array, rules: Rules) -> Array:
    """How much the deviations of samples and channel, and the samples' probabilities, depend on the model, [3].

    Along a generic direction.
    """
    some, zero = rules.sample(0), jnp.zeros((), jnp.int32)
    y0, still = run.start(some, s0, r0)
    along = tuple(jnp.sin(1.0 + k + jnp.arange(1.0, 1.0 + len(part)) ** 2) for k, part in enumerate((s0, r0, y0)))

    def largest(count: int, one: Callable[..., Array]) -> Array:
        def slope(j: Array) -> Array:
            return jax.jvp(partial(one, j), (s0, r0, y0), along)[1]

        slopes = jax.lax.map(slope, jnp.arange(count), batch_size=_AT_ONCE)
        return jnp.max(jnp.abs(slopes - slopes[:1]), initial=0.0)

    return jnp.stack(
        [
            largest(len(rules.weight), lambda j, *g: run.step(zero, rules.sample(j), still, *g)[0]),
            largest(len(rules.channel_weight), lambda j, *g: run.finish(some, rules.drawn(j), still, *g)[0]),
            jnp.abs(jax.jvp(partial(run.chances, zero, some, still, rules.nodes), (s0, r0, y0), along)[1]).max(),
        ]
    )


class OneClient:
    """One client's round in pieces, each a function of vectors: s, r, what steps carry, what is sent."""

    def __init__(self, setup: Setup, layout: Layout, rest: State, R: Array, client: Array, steps: Array | None):
        self.setup, self.layout, self.rest, self.R, self.client, self.steps = setup, layout, rest, R, client, steps

    def state(self, s: Array, r: Array) -> State:
        return self.layout.join(s, self.R.at[self.client].set(r), self.rest)

    def cohort(self, weight: Array | float, here: bool = True) -> Cohort:
        """This client alone, or nobody."""
        ids = jnp.where(here, self.client, self.setup.weights.shape[0])[None].astype(jnp.int32)
        steps = None if self.steps is None else self.steps[None]
        return Cohort(ids, jnp.asarray([weight], self.setup.weights.dtype), jnp.asarray([here]), steps)

    def training(self, s: Array, r: Array, data: PyTree, channel: PyTree = None) -> Training:
        setup, E, state = self.setup, self.setup.algorithm.steps, self.state(s, r)
        rows = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (E, 1, *leaf.shape)), data)
        return Training(
            setup.problem, setup.algorithm, client_slice(setup.problem.population, self.client),
            make_broadcast(setup, state, self.cohort(1.0)), jax.tree.map(lambda leaf: leaf[self.client], state.clients),
            Draws((rows, None), None, channel), self.steps, self.client, setup.compute, False,
            setup.clock.step(self.client),
        )  # fmt: skip

    def start(self, data: PyTree, s: Array, r: Array) -> tuple[Array, PyTree]:
        """y before the first step, and the accompanying integers."""
        carry = self.training(s, r, data).start
        return flat_like(carry).split(carry)

    def step(
        self, e: Int[Array, ""], data: PyTree, still: PyTree, s: Array, r: Array, y: Array
    ) -> tuple[Array, PyTree]:
        """y after step e."""
        training = self.training(s, r, data)
        carry = flat_like(training.start).join(y, still)
        after, _ = training.step(carry, jax.tree.map(lambda leaf: leaf[e], training.inputs))
        return flat_like(after).split(after)

    def chances(
        self, e: Int[Array, ""], data: PyTree, still: PyTree, nodes: int, s: Array, r: Array, y: Array
    ) -> Float[Array, " J"]:
        """The weights of the samples of step e."""
        training = self.training(s, r, data)
        theta, world, _ = flat_like(training.start).join(y, still)
        world = training.respond(theta, world, e)
        met = training.local(theta, world, e, training.inputs[1][e]).deployed
        return training.population.quadrature_within(world, met, nodes)[1].astype(s.dtype)

    def finish(
        self, data: PyTree, channel: PyTree, still: PyTree, s: Array, r: Array, y: Array
    ) -> tuple[Array, PyTree]:
        """What is sent and remembered, as a vector and as a tree."""
        training = self.training(s, r, data, channel)
        upload, memory = training.finish(flat_like(training.start).join(y, still), {})
        told = (upload.delta, upload.extra, memory)
        return flat_like(told).split(told)[0], (upload, memory)

    def close(self, form: Any, weight: float, here: bool, s: Array, r: Array, o: Array) -> Array:
        """s and r after the round of this client, or of nobody, with a leading constant 1: (1, s, r)."""
        state, rows = self.state(s, r), jax.tree.map(lambda leaf: leaf[None], form)
        after = close_with(self.setup, state, self.cohort(weight, here), rows, o[None])
        s, R, _ = self.layout.split(after)
        return extended(s, R[self.client])


def close_with(setup: Setup, state: State, cohort: Cohort, forms: PyTree, sent: Float[Array, "K o"]) -> State:
    """The state after the server receives what was sent: vectors for the uploads and memories of this form."""

    def filled(form: Any, o: Array) -> tuple[Upload, Any]:
        upload, memory = form
        told = (upload.delta, upload.extra, memory)
        flat = flat_like(told)
        delta, extra, memory = flat.join(o, flat.split(told)[1])
        return eqx.tree_at(lambda u: (u.delta, u.extra), upload, (delta, extra), is_leaf=lambda x: x is None), memory

    upload, memory = jax.vmap(filled)(forms, sent)
    clients = put_rows(state.clients, cohort.ids, memory)
    broadcast = make_broadcast(setup, state, cohort)
    return close_round(setup, state, cohort, broadcast, upload, clients, state.server.participation)[0]


def extended(*vectors: Array) -> Array:
    """(1, vectors ...)."""
    return jnp.concatenate([jnp.ones(1), *vectors])


def affine(function: Callable[..., Array], *at: Array) -> Array:
    """The matrix [value - slope at, slope] that represents `function` on (1, arguments ...), linearized at `at`."""
    sizes = [len(part) for part in at]
    ends = [sum(sizes[: k + 1]) for k in range(len(sizes))][:-1]
    x = jnp.concatenate(at)

    def whole(x: Array) -> Array:
        return function(*jnp.split(x, ends))

    value, push = jax.linearize(whole, x)
    slope = jax.vmap(push, out_axes=1)(jnp.eye(len(x))) if len(x) else jnp.zeros((len(value), 0))
    return jnp.concatenate([(value - slope @ x)[:, None], slope], axis=1)

"""Check on the engine's own rounds that a round is affine; if not, raise an error that names the part."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from performative._base.messages import coded
from performative._base.run_once import quickly_compiled
from performative._engine.executors import Gather
from performative._engine.keys import RunKeys, run_keys
from performative._engine.prepare import on_device
from performative._engine.round import close_round, make_broadcast
from performative._engine.setup import Setup, init_state
from performative._engine.steps import client_slice
from performative.aggregators import Mean
from performative.algorithm import Algorithm
from performative.channels import Plain
from performative.estimators import Minibatch
from performative.moments.layout import Layout, find_layout, flat_like
from performative.populations.base import collect
from performative.problem import Problem
from performative.sharing import OneModel
from performative.sharing.base import blank_local
from performative.types import Batch, Cohort, Local, Scene, State, Theta

# Roundoff tolerance, relative to the size of what is compared.
_ROUNDING = 1e-8
# Rounds to test, each with its own draws; fewer if they take more numbers than this.
_MANY, _FEW, _NUMBERS = 24, 3, 100_000
_PLAIN: dict[str, Any] = {"estimator": Minibatch(), "channel": Plain(), "aggregator": Mean(), "sharing": OneModel()}


@quickly_compiled
def _after(
    setup: Setup, layout: Layout, rest: State, seeds: Array, cohorts: Cohort, who: Array, x: Array, push: Array
) -> Array:  # fmt: skip
    """Images of points [n, D] under rounds with these seeds, in which these rows of their cohorts participate.

    push [n, 2] adds multiples of two directions to everything sent: what is linear in the model may not be linear in
    that.
    """

    def one(seed: Array, cohort: Cohort, who: Array, x: Array, push: Array) -> Array:
        state = _state(layout, x, rest)
        ids, weight = jnp.where(who, cohort.ids, layout.clients), jnp.where(who, cohort.weight, 0.0)
        cohort = dataclasses.replace(cohort, ids=ids, weight=weight, active=cohort.present & who)
        broadcast = make_broadcast(setup, state, cohort)
        cohort, upload, clients = Gather().run(setup, cohort, broadcast, state.clients, _keys(seed))
        sent = upload.delta, upload.extra, clients
        flat = flat_like(sent)
        vector, still = flat.split(sent)
        vector = vector + push @ jax.random.normal(jax.random.fold_in(jax.random.key(5), seed), (2, len(vector)))
        delta, extra, clients = flat.join(vector, still)
        upload = eqx.tree_at(lambda u: (u.delta, u.extra), upload, (delta, extra), is_leaf=lambda x: x is None)
        after = close_round(setup, state, cohort, broadcast, upload, clients, state.server.participation)[0]
        return _vector(layout, after)

    return jax.vmap(one)(seeds, cohorts, who, x, push)


def tried(
    setup: Setup, layout: Layout, rest: State, drawn: Sequence[Cohort], x: np.ndarray, y: np.ndarray
) -> tuple[float, float]:
    """How far rounds are from affine, and cohorts from adding up, relative to the size of the result.

    F(w x + (1 - w) y) - w F(x) - (1 - w) F(y),   w = 1.7;      F(A and B) - F(A) - F(B) + F(nobody)

    F of the model, the memories and what was sent, with common random numbers.
    """
    w, n = 1.7, _draws(setup, drawn[0])
    cohorts = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(drawn[k % len(drawn)] for k in range(n)))
    some = np.random.default_rng(4).random(cohorts.ids.shape) < 0.5
    all_rows, nobody = np.ones_like(some), np.zeros_like(some)
    who = np.concatenate([all_rows, all_rows, all_rows, some, ~some, nobody])
    points = np.repeat([x, y, w * x + (1 - w) * y, x, x, x], n, axis=0)
    far = 1.0 + float(np.abs([x, y]).max())
    push = far * np.repeat([[1.0, 0.0], [0.0, 1.0], [w, 1 - w], *[[1.0, 0.0]] * 3], n, axis=0)
    repeated = jax.tree.map(lambda leaf: jnp.tile(leaf, (6, *(1,) * (leaf.ndim - 1))), (jnp.arange(n), cohorts))
    seeds, cohorts = repeated
    after = _after(setup, layout, rest, seeds, cohorts, jnp.asarray(who), jnp.asarray(points), jnp.asarray(push))
    out = np.asarray(after).reshape(6, n, -1)
    size = 1.0 + np.abs(out[:2]).max(axis=(0, 2))
    bend = np.abs(out[2] - w * out[0] - (1 - w) * out[1]).max(axis=1) / size
    apart = np.abs(out[0] - out[3] - out[4] + out[5]).max(axis=1) / size
    return float(bend.max()), float(apart.max())


def _draws(setup: Setup, cohort: Cohort) -> int:
    """How many rounds to test."""
    algorithm, population = setup.algorithm, setup.problem.population
    numbers = cohort.ids.size * algorithm.steps * algorithm.batch.largest(population)
    return _MANY if numbers * _MANY <= _NUMBERS else _FEW


def check_affine(
    setup: Setup, layout: Layout, rest: State, drawn: Sequence[Cohort], x: np.ndarray, y: np.ndarray, exact: bool = True
) -> bool:
    """Raise if a round is nonlinear between two points, naming the part; return whether cohorts add up."""
    bend, apart = tried(setup, layout, rest, drawn, x, y)
    if exact and not bend <= _ROUNDING:
        raise ValueError(coded("not-affine", f"moments: {blame(setup, layout, rest, x)}"))
    return apart <= _ROUNDING


def blame(setup: Setup, layout: Layout, rest: State, x: np.ndarray) -> str:
    """Which part is nonlinear: the first without which a round would be linear."""
    algorithm, problem = setup.algorithm, setup.problem
    start = algorithm.sharing.one(_state(layout, jnp.asarray(x), rest).theta)
    loss = getattr(problem.loss, "__name__", type(problem.loss).__name__)

    def bends(changed: Algorithm) -> bool:
        plain = dataclasses.replace(setup, algorithm=changed)
        here, states, drawn = find_layout(plain, start, 4)
        s, R, still = here.split(jax.tree.map(lambda leaf: leaf[-1], states))  # memories are non-empty by then
        at, rng = np.concatenate([np.asarray(s), np.ravel(R)]), np.random.default_rng(0)
        one, other = (at + (1.0 + np.abs(at).max()) * rng.standard_normal(len(at)) for _ in range(2))
        return not tried(plain, here, still, drawn, one, other)[0] <= _ROUNDING

    plain = dataclasses.replace(algorithm, **_PLAIN)
    if bends(plain):
        return (
            f"{loss} on {type(problem.population).__name__}: its gradients are not linear in the model, so means "
            "and covariances do not close; use pf.run."
        )
    for slot in _PLAIN:
        part = getattr(algorithm, slot)
        try:
            if not part.is_plain and bends(dataclasses.replace(plain, **{slot: part})):
                return f"{slot}={type(part).__name__} is not linear in its input; use pf.run."
        except (ValueError, KeyError):  # some parts need each other
            continue
    return "this combination of parts is not linear in the model; use pf.run."


def check_mean(setup: Setup, theta: Theta) -> None:
    """Raise if a direction is not the mean of the directions of the samples of a batch."""
    algorithm, population = setup.algorithm, client_slice(setup.problem.population, jnp.zeros((), jnp.int32))
    n = algorithm.batch.largest(population)
    if n == 1:
        return
    sharing = algorithm.sharing
    local = blank_local(sharing, theta)
    met, loss = sharing.meet(local), sharing.loss(setup.problem.loss)
    noise = population.draw(jax.random.key(3), (min(n, 8),), met)
    world = population.init(Scene(met, setup.problem.loss, jnp.zeros(())))
    zero = jnp.zeros((), jnp.int32)
    state = init_state(setup, theta, False)
    broadcast = make_broadcast(setup, state, Cohort(jnp.zeros(1, jnp.int32), jnp.ones(1)))
    here = Local(
        loss, population, world, met, broadcast, zero, algorithm.eta(zero), zero, algorithm.batch.expected(population)
    )
    memory = algorithm.estimator.init(local, population, loss)

    def direction(batch: Batch) -> Array:
        return ravel_pytree(algorithm.estimator.estimate(None, local, batch, here, memory).direction)[0]

    batch = collect(population, noise, None, world, met)
    # The last sample is an outlier: an estimator may drop it.
    far = jnp.where(jnp.arange(batch.rows) == batch.rows - 1, 1e3, 1.0)
    batch = dataclasses.replace(batch, z=jax.tree.map(lambda leaf: _times(leaf, far), batch.z))
    together = direction(batch)
    alone = jax.vmap(lambda row: direction(jax.tree.map(lambda leaf: leaf[None], row)))(batch)
    if float(jnp.abs(together - alone.mean(axis=0)).max()) > _ROUNDING * (1.0 + float(jnp.abs(alone).max())):
        name = type(algorithm.estimator).__name__
        text = f"moments: estimator={name} is not the mean over the samples of a batch; use pf.run, or pf.Fixed(1)."
        raise ValueError(coded("not-affine", text))


def loss_bends(problem: Problem, theta: Theta) -> bool:
    """Whether gradients on samples of the first client are nonlinear in the model: a quick first check."""
    problem, theta = on_device(problem, jnp.float32), jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), theta)
    here = client_slice(problem.population, jnp.zeros((), jnp.int32))
    at, shaped = ravel_pytree(theta)
    world = here.init(Scene(theta, problem.loss, jnp.zeros(())))
    batch = collect(here, here.draw(jax.random.key(3), (8,), theta), None, world, theta)
    rng = np.random.default_rng(0)
    x, y = (at + jnp.asarray(rng.standard_normal(len(at)), at.dtype) for _ in range(2))

    def gradients(x: Array) -> Array:
        return jax.vmap(lambda z: ravel_pytree(jax.grad(problem.loss)(shaped(x), z))[0])(batch.z)

    one, other, beyond = (gradients(point) for point in (x, y, 1.7 * x - 0.7 * y))
    bend = float(jnp.abs(beyond - 1.7 * one + 0.7 * other).max())
    return not bend <= 1e-3 * (1.0 + float(jnp.abs(one).max()))


def _times(leaf: Array, factor: Array) -> Array:
    """Rows of floating-point numbers times a factor each."""
    return leaf * factor.reshape(-1, *(1,) * (leaf.ndim - 1)) if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf


def _keys(seed: Array) -> RunKeys:
    return run_keys(jax.random.fold_in(jax.random.key(1), seed))


def _split(layout: Layout, x: Array) -> tuple[Array, Array]:
    """(s, R) of one long vector."""
    p = len(x) - layout.width * layout.clients
    return x[:p], x[p:].reshape(layout.clients, layout.width)


def _state(layout: Layout, x: Array, rest: State) -> State:
    return layout.join(*_split(layout, x), rest)


def _vector(layout: Layout, state: State) -> Array:
    s, R, _ = layout.split(state)
    return jnp.concatenate([s, R.ravel()])

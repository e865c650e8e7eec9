"""Is a round really affine? Tried on the engine's own rounds; what is not is refused, by the name of the part."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from performative._base.messages import coded
from performative._engine.executors import Gather
from performative._engine.keys import RunKeys, run_keys
from performative._engine.round import close_round, make_broadcast
from performative._engine.setup import Setup, init_state
from performative._engine.steps import client_slice
from performative.aggregators import Mean
from performative.algorithm import Algorithm
from performative.channels import Plain
from performative.estimators import Minibatch
from performative.moments.layout import Layout, find_layout
from performative.populations.base import collect
from performative.sharing import OneModel
from performative.sharing.base import blank_local
from performative.types import Cohort, Local, Scene, State, Theta

# Of the size of what is compared: what rounding may leave.
_ROUNDING = 1e-8
_PLAIN: dict[str, Any] = {"estimator": Minibatch(), "channel": Plain(), "aggregator": Mean(), "sharing": OneModel()}


@eqx.filter_jit
def _after(setup: Setup, layout: Layout, rest: State, seeds: Array, cohorts: Cohort, who: Array, x: Array) -> Array:
    """What rounds with these chances make of points [n, D] where, of their cohorts, these rows take part."""

    def one(seed: Array, cohort: Cohort, who: Array, x: Array) -> Array:
        state = _state(layout, x, rest)
        ids, weight = jnp.where(who, cohort.ids, layout.clients), jnp.where(who, cohort.weight, 0.0)
        cohort = dataclasses.replace(cohort, ids=ids, weight=weight, active=cohort.present & who)
        broadcast = make_broadcast(setup, state, cohort)
        cohort, upload, clients = Gather().run(setup, cohort, broadcast, state.clients, _keys(seed))
        after = close_round(setup, state, cohort, broadcast, upload, clients, state.server.participation)[0]
        return _vector(layout, after)

    return jax.vmap(one)(seeds, cohorts, who, x)


def tried(
    setup: Setup, layout: Layout, rest: State, drawn: Sequence[Cohort], x: np.ndarray, y: np.ndarray
) -> tuple[float, float]:
    """How far rounds are from affine, and cohorts from adding up, over the size of what comes out.

    F(w x + (1 - w) y) - w F(x) - (1 - w) F(y),   w = 1.7;      F(A and B) - F(A) - F(B) + F(nobody)
    """
    w, n = 1.7, len(drawn)
    cohorts = jax.tree.map(lambda *leaves: jnp.stack(leaves), *drawn)
    some = np.random.default_rng(4).random(cohorts.ids.shape) < 0.5
    all_rows, nobody = np.ones_like(some), np.zeros_like(some)
    who = np.concatenate([all_rows, all_rows, all_rows, some, ~some, nobody])
    points = np.repeat([x, y, w * x + (1 - w) * y, x, x, x], n, axis=0)
    repeated = jax.tree.map(lambda leaf: jnp.tile(leaf, (6, *(1,) * (leaf.ndim - 1))), (jnp.arange(n), cohorts))
    seeds, cohorts = repeated
    after = _after(setup, layout, rest, seeds, cohorts, jnp.asarray(who), jnp.asarray(points))
    out = np.asarray(after).reshape(6, n, -1)
    size = 1.0 + np.abs(out[:2]).max(axis=(0, 2))
    bend = np.abs(out[2] - w * out[0] - (1 - w) * out[1]).max(axis=1) / size
    apart = np.abs(out[0] - out[3] - out[4] + out[5]).max(axis=1) / size
    return float(bend.max()), float(apart.max())


def check_affine(
    setup: Setup, layout: Layout, rest: State, drawn: Sequence[Cohort], x: np.ndarray, y: np.ndarray, exact: bool = True
) -> bool:
    """Refuse a round that bends between two points, by the part that bends it; say whether cohorts add up."""
    bend, apart = tried(setup, layout, rest, drawn, x, y)
    if exact and not bend <= _ROUNDING:
        raise ValueError(coded("not-affine", f"moments: {blame(setup, layout, rest, x)}"))
    return apart <= _ROUNDING


def blame(setup: Setup, layout: Layout, rest: State, x: np.ndarray) -> str:
    """Which part bends: the first without which a round would not."""
    algorithm, problem = setup.algorithm, setup.problem
    start = algorithm.sharing.one(_state(layout, jnp.asarray(x), rest).theta)
    loss = getattr(problem.loss, "__name__", type(problem.loss).__name__)

    def bends(changed: Algorithm) -> bool:
        plain = dataclasses.replace(setup, algorithm=changed)
        here, _, drawn = find_layout(plain, start, 4)
        s, R, still = here.split(init_state(plain, start, False))
        at = np.concatenate([np.asarray(s), np.ravel(R)])
        return (
            tried(plain, here, still, drawn, at, at + np.random.default_rng(0).standard_normal(len(at)))[0] > _ROUNDING
        )

    plain = dataclasses.replace(algorithm, **_PLAIN)
    if bends(plain):
        return (
            f"{loss} on {type(problem.population).__name__}: its gradients are not linear in the model, so that means "
            "and covariances do not close. Use pf.moments(..., around=pf.stable_point(problem)) for a forecast near "
            "that point, or pf.run."
        )
    for slot in _PLAIN:
        part = getattr(algorithm, slot)
        try:
            if not part.is_plain and bends(dataclasses.replace(plain, **{slot: part})):
                return f"{slot}={type(part).__name__} is not linear in what it is given; use pf.run."
        except (ValueError, KeyError):  # some parts need each other
            continue
    return "this combination of parts is not linear in the model; use pf.run."


def check_mean(setup: Setup, theta: Theta) -> None:
    """Refuse a direction that is not the mean of what each sample of a batch asks for."""
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

    def direction(rows: PyTree) -> Array:
        batch = collect(population, rows, None, world, met)
        return ravel_pytree(algorithm.estimator.estimate(None, local, batch, here, memory).direction)[0]

    together = direction(noise)
    alone = jax.vmap(lambda row: direction(jax.tree.map(lambda leaf: leaf[None], row)))(noise)
    if float(jnp.abs(together - alone.mean(axis=0)).max()) > _ROUNDING * (1.0 + float(jnp.abs(alone).max())):
        name = type(algorithm.estimator).__name__
        text = f"moments: estimator={name} is not the mean over the samples of a batch; use pf.run, or pf.Fixed(1)."
        raise ValueError(coded("not-affine", text))


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

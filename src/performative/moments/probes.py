"""Is a round really affine? Tried on the engine's own rounds; what is not is refused, by the name of the part."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from performative._base.messages import coded
from performative._engine.executors import Gather
from performative._engine.keys import run_keys
from performative._engine.round import close_round, known, make_broadcast
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
_TRIES = 4
_PLAIN = {"estimator": Minibatch(), "channel": Plain(), "aggregator": Mean(), "sharing": OneModel()}


@eqx.filter_jit
def bend(setup: Setup, layout: Layout, rest: State, first: Array, second: Array) -> Array:
    """How far rounds with the same chances are from affine on the line through two points, over their size.

    F(w x + (1 - w) y) - w F(x) - (1 - w) F(y),      w = 1.7
    """
    w = 1.7

    def one(seed: Array) -> Array:
        keys = run_keys(jax.random.fold_in(jax.random.key(1), seed))

        def after(x: Array) -> Array:
            return _vector(layout, _play(setup, _state(layout, x, rest), keys))

        ends = after(first), after(second)
        gap = after(w * first + (1 - w) * second) - w * ends[0] - (1 - w) * ends[1]
        return _ratio(gap, *ends)

    return jnp.max(jax.vmap(one)(jnp.arange(_TRIES)))


@eqx.filter_jit
def apart(setup: Setup, layout: Layout, rest: State, x: Array) -> Array:
    """How far two parts of a cohort are from adding up, each to what the round does without both, over its size."""

    def one(seed: Array) -> Array:
        keys = run_keys(jax.random.fold_in(jax.random.key(1), seed))
        state = _state(layout, x, rest)
        cohort = _cohort(setup, state, keys)
        both, alone = (_vector(layout, _given(setup, state, who, keys)) for who in (cohort, _nobody(setup, cohort)))

        some = jax.random.bernoulli(jax.random.fold_in(jax.random.key(2), seed), 0.5, cohort.ids.shape)

        def effect(who: Array) -> Array:
            mine = dataclasses.replace(
                cohort, ids=jnp.where(who, cohort.ids, setup.weights.shape[0]),
                weight=jnp.where(who, cohort.weight, 0), active=who & cohort.present,
            )  # fmt: skip
            return _vector(layout, _given(setup, state, mine, keys)) - alone

        return _ratio(both - alone - effect(some) - effect(~some), both)

    return jnp.max(jax.vmap(one)(jnp.arange(_TRIES)))


def adds_up(setup: Setup, layout: Layout, rest: State, x: Array) -> bool:
    """Whether what a cohort does is the sum of what its clients do."""
    return float(apart(setup, layout, rest, x)) <= _ROUNDING


def check_affine(setup: Setup, layout: Layout, rest: State, first: Array, second: Array) -> None:
    """Refuse a round that bends between two points, by the part that bends it."""
    if float(bend(setup, layout, rest, first, second)) <= _ROUNDING:
        return
    raise ValueError(coded("not-affine", f"moments: {blame(setup, layout, rest, first, second)}"))


def blame(setup: Setup, layout: Layout, rest: State, first: Array, second: Array) -> str:
    """Which part bends: the first without which a round would not."""
    algorithm = setup.algorithm
    theta = layout.join(*_split(layout, first), rest).theta
    problem = setup.problem
    loss = getattr(problem.loss, "__name__", type(problem.loss).__name__)

    def bends(changed: Algorithm) -> bool:
        plain = dataclasses.replace(setup, algorithm=changed)
        start = algorithm.sharing.one(theta)
        here, _ = find_layout(plain, start, 4)
        state = init_state(plain, start, False)
        s, R, still = here.split(state)
        rng = np.random.default_rng(0)
        x = jnp.concatenate([s, R.ravel()])
        return float(bend(plain, here, still, x, x + jnp.asarray(rng.standard_normal(len(x))))) > _ROUNDING

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
    if float(_ratio(together - alone.mean(axis=0), alone)) > _ROUNDING:
        name = type(algorithm.estimator).__name__
        text = f"moments: estimator={name} is not the mean over the samples of a batch; use pf.run, or pf.Fixed(1)."
        raise ValueError(coded("not-affine", text))


def _cohort(setup: Setup, state: State, keys: Any) -> Cohort:
    participation = setup.algorithm.participation
    return participation.select(keys.of_server(state.round), known(setup, state), state.server.participation)[0]


def _play(setup: Setup, state: State, keys: Any) -> State:
    return _given(setup, state, _cohort(setup, state, keys), keys)


def _given(setup: Setup, state: State, cohort: Cohort, keys: Any) -> State:
    """The round of this cohort."""
    broadcast = make_broadcast(setup, state, cohort)
    cohort, upload, clients = Gather().run(setup, cohort, broadcast, state.clients, keys)
    return close_round(setup, state, cohort, broadcast, upload, clients, state.server.participation)[0]


def _nobody(setup: Setup, cohort: Cohort) -> Cohort:
    ids = jnp.full_like(cohort.ids, setup.weights.shape[0])
    return dataclasses.replace(cohort, ids=ids, weight=jnp.zeros_like(cohort.weight), active=jnp.zeros(len(ids), bool))


def _split(layout: Layout, x: Array) -> tuple[Array, Array]:
    """(s, R) of one long vector."""
    p = len(x) - layout.width * layout.clients
    return x[:p], x[p:].reshape(layout.clients, layout.width)


def _state(layout: Layout, x: Array, rest: State) -> State:
    return layout.join(*_split(layout, x), rest)


def _vector(layout: Layout, state: State) -> Array:
    s, R, _ = layout.split(state)
    return jnp.concatenate([s, R.ravel()])


def _ratio(gap: Array, *sizes: Array) -> Array:
    return jnp.max(jnp.abs(gap)) / (1.0 + jnp.max(jnp.stack([jnp.max(jnp.abs(one)) for one in sizes])))

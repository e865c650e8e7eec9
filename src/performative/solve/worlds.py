"""What clients' data remember: worlds at the start, after a deployment, at rest, and how they propagate a change."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from performative._base.client_axis import map_clients
from performative._base.messages import coded
from performative._engine.risk import decoupled_risk
from performative.populations.settling import SPELLS, flatten_world, settled
from performative.problem import Problem
from performative.types import Scene, Theta

# Relative change per spell below which a world counts as at rest: half of the digits.
_REST = 1e-8
# Columns of a derivative that are computed together.
_COLUMNS = 8


def remembers(problem: Problem, theta: Theta) -> bool:
    """Whether some client's data depend on models before the deployed one."""
    return bool(jax.tree.leaves(eqx.filter_eval_shape(_first, problem, theta)))


def first_worlds(problem: Problem, theta: Theta) -> PyTree:
    """Clients' worlds [N, ...] when theta is the first model they meet; None if nothing is remembered."""
    return _first_compiled(problem, theta) if remembers(problem, theta) else None


def moved_worlds(problem: Problem, worlds: PyTree, theta: Theta, spells: int | None) -> PyTree:
    """The worlds after `spells` spells under theta, None for as many as it takes."""
    if worlds is None:
        return None
    if spells is None:
        check_rest(problem, theta, theta)
        return _settle(problem, theta)
    return _deploy(problem, worlds, theta, spells)


def check_rest(problem: Problem, theta: Theta, before: Theta) -> None:
    """Raise if the worlds do not come to rest under theta, or their limit depends on the previous model."""
    if not remembers(problem, theta):
        return
    x = np.asarray(ravel_pytree(theta)[0])
    if np.array_equal(x, ravel_pytree(before)[0]):
        before = jax.tree.map(lambda leaf: leaf + 1.0, theta)
    stirs, apart = (np.asarray(each) for each in _restless(problem, theta, before))
    owner, where = type(problem.population).__name__, np.array2string(x, precision=4, threshold=6)
    if np.any(np.isnan(stirs)):
        text = (
            f"{owner}: under theta = {where} the memory of client {int(np.argmax(np.isnan(stirs)))} does not come to "
            f"rest (its speed is 0, or it still moves after {SPELLS} spells), so there is no world to find a point for."
            " Override `settle` if the limit is known; repeated_risk_minimization and pf.run need none."
        )
        raise ValueError(coded("world-never-rests", text))
    client = int(np.argmax(stirs))
    if stirs[client] > _REST:
        text = (
            f"{owner}: under theta = {where} one more spell moves the settled world of client {client} by "
            f"{stirs[client]:.2g} of its size. `settle` must return a world with deploy(world, theta) = world; without "
            "`settle` it is found by repeating `deploy`."
        )
        raise ValueError(coded("settle-is-no-limit", text))
    client = int(np.argmax(apart))
    if apart[client] > _REST:
        text = (
            f"{owner}: the limit of the memory of client {client} under theta = {where} depends on the model that it "
            f"met first: two limits differ by {apart[client]:.2g} of their size. There is no single world to find a "
            "point for; follow it from the first model with repeated_risk_minimization or pf.run."
        )
        raise ValueError(coded("world-keeps-its-start", text))


def pass_on(
    problem: Problem, weights: Array, theta: Theta, samples: int
) -> tuple[int, Callable[[np.ndarray], np.ndarray]]:
    """How one deployment propagates a small change of the settled worlds and of the deployed model theta.

    Returns the numbers in all worlds, n, and the linear map of rows [..., n + d] to rows [..., n + d]: changes of
    (worlds, deployed model) to those of (worlds after a spell, grad_1 f(theta; those worlds, deployed model)).
    """
    flat = _flat(problem, theta)

    def apply(rows: np.ndarray) -> np.ndarray:
        return np.asarray(_passed(problem, weights, theta, flat, jnp.asarray(rows), samples))

    return flat.size, apply


def _each(problem: Problem, function: Callable[..., Any], *rows: PyTree) -> Any:
    return map_clients(function, problem.population, problem.clients, *rows)


def _first(problem: Problem, theta: Theta) -> PyTree:
    return _each(problem, lambda mine: mine.init(Scene(theta, problem.loss)))


_first_compiled = eqx.filter_jit(_first)


@eqx.filter_jit
def _settle(problem: Problem, theta: Theta) -> PyTree:
    return _each(problem, lambda mine: mine.settle(Scene(theta, problem.loss)))


@eqx.filter_jit
def _deploy(problem: Problem, worlds: PyTree, theta: Theta, spells: int) -> PyTree:
    def spell(_: PyTree, worlds: PyTree) -> PyTree:
        return _each(problem, lambda mine, world: mine.deploy(world, Scene(theta, problem.loss)), worlds)

    return jax.lax.fori_loop(0, spells, spell, worlds)


@eqx.filter_jit
def _restless(problem: Problem, theta: Theta, before: Theta) -> tuple[Array, Array]:
    """How far a spell moves each settled world, and how far it is from the one reached after another model.

    Both relative to their size. If spells from the other model did not come to rest, nothing is known: 0.
    """

    def one(mine: PyTree) -> tuple[Array, Array]:
        rests = mine.settle(Scene(theta, problem.loss))
        after = mine.deploy(rests, Scene(theta, problem.loss))
        first = mine.init(Scene(before, problem.loss))
        other = settled(lambda world: mine.deploy(world, Scene(theta, problem.loss)), first)
        here, once_more, origin, elsewhere = (flatten_world(world)[0] for world in (rests, after, first, other))
        size = jnp.max(jnp.abs(jnp.stack([here, origin]))) + jnp.finfo(here.dtype).tiny
        apart = jnp.max(jnp.abs(elsewhere - here)) / size
        return jnp.max(jnp.abs(once_more - here)) / size, jnp.where(jnp.isnan(apart), 0.0, apart)

    return _each(problem, one)


@eqx.filter_jit
def _flat(problem: Problem, theta: Theta) -> Float[Array, "N n"]:
    """The settled worlds as vectors."""
    return _each(problem, lambda mine: flatten_world(mine.settle(Scene(theta, problem.loss)))[0])


@eqx.filter_jit
def _passed(
    problem: Problem, weights: Array, theta: Theta, flat: Float[Array, "N n"], rows: Float[Array, "k all"], samples: int
) -> Float[Array, "k all"]:
    x, shape = ravel_pytree(theta)
    back = flatten_world(jax.tree.map(lambda leaf: leaf[0], _first(problem, theta)))[1]

    def deployed(flat: Array, model: Array) -> tuple[Array, Array]:
        def spell(mine: PyTree, world: Array) -> Array:
            return flatten_world(mine.deploy(back(world), Scene(shape(model), problem.loss)))[0]

        after = _each(problem, spell, flat)
        worlds = jax.vmap(back)(after)
        gradient = jax.grad(lambda at: decoupled_risk(problem, weights, shape(at), shape(model), worlds, samples))(x)
        return after, gradient

    def one(row: Array) -> Array:
        change = row[: flat.size].reshape(flat.shape), row[flat.size :]
        after, gradient = jax.jvp(deployed, (flat, x), change)[1]
        return jnp.concatenate([after.ravel(), gradient])

    return jax.lax.map(one, rows, batch_size=_COLUMNS)

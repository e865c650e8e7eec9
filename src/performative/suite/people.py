"""How people in an environment react, and the rows they generate: one compiled program each, in float64."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from performative._base.client_axis import map_clients
from performative.problem import Problem
from performative.types import Scene, Theta

Players = Int[Array, " N"]


def _each(
    function: Callable[..., Any], problem: Problem, theta: Theta, time: Array, players: Players | None, *rows: PyTree
) -> Any:
    """function(client's part, its scene, its rows ...) for each client."""
    if players is None:
        scene = Scene(theta, problem.loss, time)
        return map_clients(lambda mine, *own: function(mine, scene, *own), problem.population, problem.clients, *rows)

    def one(mine: PyTree, player: Array, *own: PyTree) -> Any:
        return function(mine, Scene(theta[player], problem.loss, time, theta, player), *own)

    return map_clients(one, problem.population, problem.clients, players, *rows)


@eqx.filter_jit
def first_worlds(problem: Problem, theta: Theta, time: Array, players: Players | None) -> PyTree:
    """Clients' worlds when theta is the first deployed model."""
    return _each(lambda mine, scene: mine.init(scene), problem, theta, time, players)


@eqx.filter_jit
def next_worlds(problem: Problem, worlds: PyTree, theta: Theta, time: Array, players: Players | None) -> PyTree:
    """The worlds after one more time step under theta."""
    return _each(lambda mine, scene, world: mine.deploy(world, scene), problem, theta, time, players, worlds)


@eqx.filter_jit
def draw_rows(
    problem: Problem, worlds: PyTree, theta: Theta, time: Array, players: Players | None, key: PRNGKeyArray, rows: int
) -> tuple[PyTree, Float[Array, "N n"]]:
    """Rows [N, n, ...] of each client under theta, and the loss of theta on each."""

    def one(mine: PyTree, scene: Scene, world: PyTree, own: PRNGKeyArray) -> tuple[PyTree, Array]:
        noise = mine.draw(own, (rows,), scene.theta)
        z = jax.vmap(lambda u: mine.sample(u, world, scene.theta))(noise)
        return z, jax.vmap(lambda row: problem.loss(scene.theta, row))(z)

    keys = jax.vmap(lambda client: jax.random.fold_in(key, client))(jnp.arange(problem.clients))
    return _each(one, problem, theta, time, players, worlds, keys)

"""A game as a landscape: all players' models as one vector, each projected separately."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from performative._base.checks import check_finite
from performative._base.client_axis import map_clients
from performative._base.messages import coded
from performative._engine.prepare import check_fit, on_device, read_theta
from performative._engine.risk import NODES
from performative.domains import AbstractDomain, Box
from performative.game import Game
from performative.populations.settling import flatten_world
from performative.problem import Problem
from performative.solve.landscape import Landscape
from performative.types import Scene, Theta, as_array

# Relative distance below which two worlds count as equal: half of the digits.
_SAME = 1e-8


class EachPlayer(AbstractDomain):
    """The same set for each player's model."""

    inner: AbstractDomain

    def project(self, theta: Theta) -> Theta:
        return jax.vmap(self.inner.project)(theta)


def survey_game(game: Game, start: Any, samples: int = NODES, name: str = "start") -> tuple[Landscape, np.ndarray]:
    """The landscape of a game and its start as a vector: one model for all players, or an array with one for each.

    Call it, and everything that uses the landscape, inside `jax.enable_x64(True)`.
    """
    problem, count = game.problem, game.count
    if problem.population.reads_time:
        text = "the data change on their own, so no point is fixed: use pf.Game(problem.at(time), ...)."
        raise ValueError(coded("target-moves", text))
    on = on_device(problem, jnp.float64)
    shape = problem.population.model_shape()
    listed = as_array(start) if isinstance(start, (list, tuple, np.ndarray, jax.Array)) else np.zeros(())
    apart = shape is not None and listed.ndim > 0 and listed.shape == (count, *shape)
    one = read_theta(on, listed[0] if apart else start, jnp.float64, name)
    check_fit(on, one, name)
    if apart:
        check_finite("Game", **{name: listed})
    like = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), one)
    domain = on.domain if on.domain is None or isinstance(on.domain, Box) else EachPlayer(on.domain)
    weights, players = jnp.asarray(game.client_weights), jnp.asarray(game.players, jnp.int32)
    land = Landscape(Problem(on.loss, on.population), weights, like, domain, samples=samples, players=players)
    first = land.flat(np.asarray(listed, np.float64) if apart else like)
    return land, land.project(first)


def keeps_past(land: Landscape, x: np.ndarray) -> bool:
    """Whether people's data depend on models before the deployed ones, so a game's state is more than the models.

    Tested numerically: from the world of other models, one spell under x must lead to the settled world of x.
    """
    other = x + 0.1 * (1.0 + np.abs(x)) * np.cos(np.arange(len(x)))
    return bool(np.asarray(_lag(land.everywhere, jnp.asarray(x), jnp.asarray(other))) > _SAME)


@eqx.filter_jit
def _lag(land: Landscape, x: Array, other: Array) -> Array:
    here, before = land.model(x), land.model(other)
    loss = land.problem.loss

    def one(mine: PyTree, player: Array) -> Array:
        def scene(models: Theta) -> Scene:
            return Scene(jax.tree.map(lambda leaf: leaf[player], models), loss, None, models, player)

        world = mine.init(scene(before))
        if not jax.tree.leaves(world):
            return jnp.zeros(())
        once, rest = flatten_world(mine.deploy(world, scene(here)))[0], flatten_world(mine.settle(scene(here)))[0]
        gap = jnp.max(jnp.abs(once - rest)) / (1.0 + jnp.max(jnp.abs(rest)))
        return jnp.where(jnp.isnan(gap), jnp.inf, gap)

    assert land.players is not None
    return jnp.max(map_clients(one, land.problem.population, land.problem.clients, land.players))

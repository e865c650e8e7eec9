"""The points of a game: where retraining settles, where no player gains alone, and where total risk is minimal."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from performative._base.arguments import checked
from performative._base.messages import coded
from performative._engine.risk import client_risks
from performative.facts import cites
from performative.game import Game
from performative.solve.attraction import attraction
from performative.solve.landscape import Landscape
from performative.solve.optimal import local_minima
from performative.solve.roots import (
    TOLERANCE,
    allowed,
    escaped,
    faded,
    find_root,
    is_new,
    meets,
    natural_residual,
    scatter,
)
from performative.solve.sampling import check_samples, choose, point_error, tell_error
from performative.solve.seats import survey_game
from performative.solve.solution import Solution
from performative.types import Theta

_STARTS = 8
# How far a player searches for an improvement, in units of 1 + |its model|, and in how many directions.
_AWAY = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0, 1e4)
_DIRECTIONS = 8
# The relative gain a deviation needs to count: more than roundoff.
_GAIN = 1e-9


def stable_game(game: Game, start: Theta, tolerance: float, samples: int | None) -> tuple[Solution, ...]:
    """All points found at which no player would retrain, nearest to `start` first: see `pf.stable_point`."""
    with jax.enable_x64(True):
        land, origin = survey_game(game, start, check_samples(samples))
        points = list(_roots(land, origin, tolerance))
        found = [_judge(land, x, "root of all players' decoupled gradients") for x in points]
        if not found:
            text = "stable_point: no stable point of the game was found. Give another `start` or a domain."
            raise ValueError(coded("no-stable-point", text))
        return tuple(found)


@cites("narang2023multiplayer")
@checked
def nash_point(
    game: Game, start: Theta = None, report: bool = False, tolerance: float = TOLERANCE, *, samples: int | None = None
) -> Theta | Solution:
    """Models [players, ...] at which no player gains by changing its own, accounting for the reaction of its data.

        theta_g = argmin over t of  f_g(t; theta_-g, t)   for every player g

    A root of d f_g / d theta_g at which every player's risk curves up and is nowhere lower within the search range
    (steps of 0.01 to 10,000 times the model's size). If there are several, the one nearest to `start` (None for zeros)
    that attracts best responses is returned. Raises ValueError if there is none, or if a player can do better.

    Args:
        start: one model for all players, or one per player
        report: return the whole `Solution`: `contraction` is the spectral radius of simultaneous best responses at the
            point, `settles` whether small gradient steps of all players settle there; NaN and None if data remember
            past models
        tolerance, samples: as in `pf.stable_point`

    Narang et al. 2023.
    """
    return choose("nash_point", "simultaneous best responses", nash_game(game, start, tolerance, samples), report)


def nash_game(game: Game, start: Theta, tolerance: float, samples: int | None) -> tuple[Solution, ...]:
    """All Nash points found, nearest to `start` first."""
    with jax.enable_x64(True):
        land, origin = survey_game(game, start, check_samples(samples))
        land = dataclasses.replace(land, foresees=True)
        found, why = list[Solution](), ""
        for x in _roots(land, origin, tolerance):
            why = _who_gains(land, game, x)
            if not why:
                found.append(_judge(land, x, "root of all players' own gradients"))
        if not found:
            text = f"nash_point: no Nash point was found. {why or 'Give another `start` or a domain.'}"
            raise ValueError(coded("no-nash-point", text))
        return tuple(found)


@cites("narang2023multiplayer")
@checked
def social_point(
    game: Game, start: Theta = None, report: bool = False, tolerance: float = TOLERANCE, *, samples: int | None = None
) -> Theta | Solution:
    """Models [players, ...] that minimize the players' total risk: argmin of sum_g f_g(theta_g; theta).

    Every player counts equally, regardless of its clients' weights. Arguments as in `pf.nash_point`; the best of
    several local minima is returned, with no proof that it is global.
    """
    with jax.enable_x64(True):
        land, origin = survey_game(game, start, check_samples(samples))
        view = land.performative()
        points = [origin, *scatter(land, origin, _STARTS // 2)] if land.dense else [origin]
        known, far, least = local_minima(land, view, origin, points, tolerance, search=True)
        if not known or far:
            why = "it keeps decreasing far out" if far else f"the smallest residual is {least:.3g}"
            text = f"social_point: no minimizer of the players' total risk was found: {why}. Pass a domain."
            raise ValueError(coded("no-social-point", text))
        best, *others = sorted(known, key=lambda point: point.risk)
        error = point_error(land, Landscape.performative, land.flat(best.theta))
        whole = dataclasses.replace(best, error=error, others=tuple(others))
        if not report:
            tell_error("social_point: the point", error, whole.theta)
        return whole if report else whole.theta


@checked
def player_risks(game: Game, theta: Any, *, samples: int | None = None) -> np.ndarray:
    """f_g(theta_g; theta) of each player, [players], when all of these models [players, ...] are deployed."""
    with jax.enable_x64(True):
        land, x = survey_game(game, theta, check_samples(samples), "theta")
        own = np.asarray(_own_risks(land.everywhere, jnp.asarray(x)[None], jnp.asarray(x)))[0]
        return np.bincount(game.players, game.client_weights * own)


def _roots(land: Landscape, origin: np.ndarray, tolerance: float) -> Iterator[np.ndarray]:
    """Distinct roots of all players' gradients, nearest to the start first."""
    view, known = land.equilibrium(), list[np.ndarray]()
    for start in [origin, *scatter(land, origin, _STARTS)] if land.dense else [origin]:
        x, residual = find_root(land, view, start, known)
        if meets(x, known) or residual > allowed(view, x, tolerance):
            continue
        if escaped(origin, x) or not is_new(view, x, known):
            continue
        if land.domain is not None or not faded(view, origin, x):
            known.append(x)
    yield from sorted(known, key=lambda x: float(np.linalg.norm(x - origin)))


def _judge(land: Landscape, x: np.ndarray, method: str) -> Solution:
    view = land.equilibrium()
    factor, attracting, settles = attraction(land, x)
    error = point_error(land, Landscape.equilibrium, x)
    residual = natural_residual(land, view, x)
    return Solution(land.shaped(x), residual, method, view.value(x), error, factor, attracting, settles)


def _who_gains(land: Landscape, game: Game, x: np.ndarray) -> str:
    """Which player would leave x and where to, in words; "" if none was found.

    With the others' models fixed, players do not see each other's deviations, so all are tried at once.
    """
    blocks = player_blocks(land, game.count)
    size, rng = blocks.shape[1], np.random.default_rng(0)
    ways = [np.broadcast_to(way, blocks.shape) for way in np.eye(size)[:_DIRECTIONS]]
    ways += [rng.standard_normal(blocks.shape) for _ in range(min(size - 1, _DIRECTIONS))]
    scale = 1.0 + np.max(np.abs(x[blocks]), axis=1, keepdims=True)
    points = [x]
    for way in ways:
        unit = way / np.linalg.norm(way, axis=1, keepdims=True)
        for step in (*_AWAY, *(-step for step in _AWAY)):
            points.append(x.copy())
            points[-1][blocks] += step * scale * unit
    tried = np.stack([land.project(point) for point in points])
    each = np.asarray(_own_risks(land.everywhere, jnp.asarray(tried), jnp.asarray(x)))
    risks = np.stack([np.bincount(game.players, game.client_weights * row) for row in each])
    gains = np.nan_to_num(risks[0] - risks, nan=-np.inf)
    gains = np.where(gains > _GAIN * (1.0 + np.abs(risks[0])), gains, 0.0)
    if not np.any(gains):
        return ""
    at, g = np.unravel_index(int(np.argmax(gains)), gains.shape)
    there = np.array2string(tried[at][blocks[g]], precision=4, threshold=6)
    return (
        f"Where all gradients vanish, player {g} gains {gains[at, g]:.3g} by moving to {there}, so it is not a Nash "
        "point. Give another `start` or a domain."
    )


def player_blocks(land: Landscape, count: int) -> np.ndarray:
    """Indices of each player's parameters in the vector, [players, parameters of one model]."""
    numbered = land.shaped(np.arange(land.size, dtype=np.float64))
    leaves = [np.asarray(leaf).reshape(count, -1) for leaf in jax.tree.leaves(numbered)]
    return np.concatenate(leaves, axis=1).astype(int)


@eqx.filter_jit
def _own_risks(land: Landscape, points: Float[Array, "n d"], x: Float[Array, " d"]) -> Float[Array, "n N"]:
    """Each client's risk when its player plays its part of a point and the others play theirs of x."""
    others = land.model(x)

    def one(point: Array) -> Array:
        own = jax.tree.map(lambda leaf: leaf[land.players], land.model(point))
        return client_risks(land.problem, own, own, None, land.samples, apart=True, models=others, players=land.players)

    return jax.lax.map(one, points)

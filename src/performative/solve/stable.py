"""Performatively stable points: where retraining settles."""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from performative._base.arguments import Count, checked
from performative._base.messages import coded, warn
from performative.facts import cites
from performative.game import Game
from performative.problem import Problem
from performative.sharing import AbstractSharing
from performative.solve.attraction import attraction
from performative.solve.games import stable_game
from performative.solve.landscape import Landscape, View, survey
from performative.solve.roots import (
    TOLERANCE,
    allowed,
    bracketed_roots,
    escaped,
    faded,
    find_root,
    is_new,
    meets,
    natural_residual,
    scatter,
    walk,
)
from performative.solve.sampling import check_samples, choose, point_error
from performative.solve.sharing import SharedPoint, shared_point
from performative.solve.solution import Solution
from performative.solve.worlds import check_rest
from performative.types import Theta

_STARTS = 14


@cites("perdomo2020performative")
@checked
def stable_point(
    problem: Problem | Game,
    start: Theta = None,
    report: bool = False,
    tolerance: float = TOLERANCE,
    *,
    samples: int | None = None,
    time: float | None = None,
    spells: Count | None = 1,
    sharing: AbstractSharing | None = None,
) -> Theta | Solution | SharedPoint:
    """theta_PS: a root of the decoupled gradient, in closed form if the population has one.

        G(theta) = grad_1 f(theta; theta) = 0,      with a domain  theta = P(theta - G(theta))

    If the decoupled risk f(. ; theta) is convex, this is the fixed point of retraining to its minimum. If there are
    several points, the attracting one nearest to `start` (None for zeros) is returned; `equilibria` lists all points
    found. A point that repels retraining is returned with a warning; raises ValueError if there is none.

    For a `pf.Game` it is where no player would retrain, models [players, ...]: grad_1 f_g(theta_g; theta) = 0 for every
    player g; all players then retrain at once.

    Args:
        problem: or a game
        report: return the whole `Solution` (residual, error, method, contraction factor, the others found)
        tolerance: largest residual that counts as zero
        samples: draws per client, None for 2048. Expectations over tables, and of smooth losses over normal data of up
            to four dimensions, need none; otherwise the point has the standard error `Solution.error`
        time: simulated time, if the population changes with it: the point at which training would settle if it stood
            still
        spells: how often the world moves under each model, if the data remember past ones: whether a point attracts may
            depend on it. None waits until the data have settled
        sharing: who shares a model with whom, as in an algorithm. Unless all share one model, the result is a
            `SharedPoint`: where a round changes, in expectation, neither what the server keeps nor what clients keep.
            It is the one that Newton's method finds from `start`; other points, whether it attracts, and the error of
            draws are not reported

    Jin et al. 2024, Proposition 2.8. Differs from the paper: an average sensitivity above mu / L does not rule out a
    stable point; the point may then repel.
    """
    if isinstance(problem, Game):
        if time is not None:
            raise ValueError("stable_point: for a game that changes with time, use pf.Game(problem.at(time), ...).")
        if sharing is not None:
            raise ValueError("stable_point: the players of a game determine who shares a model; omit sharing.")
        found = stable_game(problem, start, tolerance, samples)
    else:
        problem = problem if time is None else problem.at(time)
        if sharing is not None and not sharing.is_one:
            return shared_point(problem, sharing, start, tolerance, check_samples(samples))
        found = equilibria(problem, start=start, tolerance=tolerance, samples=samples, spells=spells)
    return choose("stable_point", "retraining", found, report)


@cites("perdomo2020performative")
@checked
def equilibria(
    problem: Problem,
    starts: Sequence[Any] | None = None,
    *,
    start: Theta = None,
    tolerance: float = TOLERANCE,
    samples: int | None = None,
    spells: Count | None = 1,
) -> tuple[Solution, ...]:
    """All stable points found, nearest to `start` first, each with residual and attracting flag.

    Args:
        starts: Models to search from; None uses `start` and points scattered around it (or over the Box).
        spells: as in `stable_point`

    In one dimension each sign change of G between starts is followed up, so a repelling point between two attracting
    ones is found. The list is no proof that there are no others. Large tables are searched on every k-th row first;
    candidates are then refined on all rows.
    """
    with jax.enable_x64(True):
        land, origin = survey(problem, start, samples=check_samples(samples), name="start")
        view = land.equilibrium()
        weights = np.asarray(problem.client_weights)
        closed = land.inside(problem.population.stable_point(problem.loss, weights))
        if closed is not None and problem.domain is None and starts is None:
            return (_judge(land, view, closed, origin, "closed form", tolerance, spells),)
        if starts is None:
            points = [origin, *scatter(land, origin, _STARTS)] if land.dense else [origin]
        else:
            points = [survey(problem, theta, name="starts")[1] for theta in starts]
        if not points:
            raise ValueError("starts must contain at least one model; None picks some.")
        view = view.compiled(points[0])
        found = [] if closed is None else [_judge(land, view, closed, origin, "closed form", tolerance, spells)]
        known = [] if closed is None else [closed]
        least = (np.inf, origin)
        for x, residual in _search(land, view, points, found, known):
            least = min(least, (residual, x), key=lambda pair: pair[0])
            if meets(x, known) or residual > allowed(view, x, tolerance) or faded(view, origin, x):
                continue
            # If H + C is singular up to roundoff, the "root" lies at infinity.
            if not escaped(origin, x) and is_new(view, x, known):
                known.append(x)
                found.append(_judge(land, view, x, origin, "root of the decoupled gradient", tolerance, spells))
        if not known:
            raise ValueError(coded("no-stable-point", _nothing(land, view, *least)))
        order = np.argsort([np.linalg.norm(x - origin) for x in known], kind="stable")
        return tuple(found[i] for i in order)


def _search(
    land: Landscape, view: View, points: Sequence[np.ndarray], found: list[Solution], known: list[np.ndarray]
) -> Iterator[tuple[np.ndarray, float]]:
    """Roots from each start, in one dimension also between starts, and if none attracts, from where steps lead.

    `found` and `known` grow as the caller consumes what this yields.
    """
    rough = land.rough()
    outline = view if rough is land else rough.equilibrium()
    for x in points if rough is land else _near_roots(rough, outline, points):
        yield find_root(land, view, x, known)
    if land.size == 1:
        for x in bracketed_roots(land, view, points):
            yield x, natural_residual(land, view, x)
    if not any(point.attracting for point in found):
        yield find_root(land, view, walk(rough, outline, points[0]), known)


def _near_roots(land: Landscape, view: View, points: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Where searches on a subset of the samples end; the starts themselves if they end nowhere."""
    ends: list[np.ndarray] = []
    for start in points:
        x, residual = find_root(land, view, start, ends)
        if meets(x, ends):
            continue
        if residual <= allowed(view, x) and not escaped(start, x) and is_new(view, x, ends):
            ends.append(x)
    return ends or list(points)


def _judge(
    land: Landscape, view: View, x: np.ndarray, origin: np.ndarray, method: str, tolerance: float, spells: int | None
) -> Solution:
    check_rest(land.problem, land.model(x), land.model(origin))
    residual = natural_residual(land, view, x)
    if residual > allowed(view, x, max(tolerance, 1e-6)):
        warn(
            "closed-form-disagrees",
            f"stable_point: the decoupled gradient at the {method} is {residual:.3g}, not 0. Check the "
            "population's stable_point, or define an exact `quadrature` for it.",
        )
    factor, attracting, settles = attraction(land, x, spells)
    error = 0.0 if method == "closed form" else point_error(land, Landscape.equilibrium, x)
    return Solution(land.shaped(x), residual, method, view.value(x), error, factor, attracting, settles)


def _nothing(land: Landscape, view: View, residual: float, x: np.ndarray) -> str:
    where = np.array2string(x, precision=4, threshold=6)
    message = f"stable_point: no stable point was found; the smallest residual is {residual:.3g}, at theta = {where}."
    slope = view.slope(x)
    if slope is not None and np.all(np.isfinite(slope)):
        values = np.linalg.svd(slope, compute_uv=False)
        curvature = np.linalg.norm(land.own_curvature(x, x), 2)
        if values[-1] <= 1e-9 * max(curvature, values[0], 1e-300):
            return message + (
                " There the reaction of the data cancels the curvature of the loss (for a Gaussian mean: the"
                " average sensitivity is 1), so a stable point need not exist. Set a domain on the problem."
            )
    return message + " Give another `start`, a domain, or a larger `tolerance`."

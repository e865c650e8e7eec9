"""Performatively optimal points: where the risk that theta brings about is least."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from performative.messages import coded, warn
from performative.problem import Problem
from performative.solve.landscape import Landscape, View, survey
from performative.solve.minimise import minimise, nearer
from performative.solve.roots import TOLERANCE, allowed, escaped, faded, is_new, natural_residual, scatter
from performative.solve.solution import Solution
from performative.solve.worlds import check_rest
from performative.types import Theta

_STARTS = 6


def optimal_point(
    problem: Problem,
    start: Any = None,
    starts: Sequence[Any] | int | None = None,
    report: bool = False,
    tolerance: float = TOLERANCE,
) -> Theta | Solution:
    """theta_PO = argmin_theta f(theta; theta), in closed form where the population has one.

    Else the performative risk is minimised by its exact gradient, which goes through the distribution map (a
    sample is a pushforward of randomness that does not know theta). The risk need not be convex, so this is
    done from several starts: `start` (None for zeros) and, in `starts`, a list of models or a number of
    scattered ones. The best is taken; report=True returns a `Solution` with the other local optima in
    `others`. None is proved to be global.
    """
    with jax.enable_x64(True):
        land, origin = survey(problem, start)
        view = land.performative()
        weights = np.asarray(problem.client_weights)
        closed = land.inside(problem.population.optimal_point(problem.loss, weights))
        if closed is not None:
            check_rest(land.problem, land.model(closed), land.model(origin))
            residual = natural_residual(land, view, closed)
            best = Solution(land.shaped(closed), residual, "closed form", view.value(closed))
            if residual > allowed(view, closed, max(tolerance, 1e-6)):
                warn(
                    "closed-form-disagrees",
                    "optimal_point: the gradient of the performative risk at the closed form is "
                    f"{residual:.3g}, not 0. Check the population's optimal_point, or give it `nodes` "
                    "that are exact.",
                )
            return best if report else best.theta
        points = nearer(land, Landscape.performative, _starting_points(problem, land, origin, starts))
        known, far, least = _local_minima(land, view, origin, points)
        known = [point for point in known if point.residual <= allowed(view, land.flat(point.theta), tolerance)]
        if not known:
            why = "it keeps falling far out" if far else f"the least residual is {least:.3g}"
            text = (
                f"optimal_point: no minimiser of the performative risk was found: {why}. "
                "Give the problem a domain, such as pf.Box(lo, hi), or other `starts`."
            )
            raise ValueError(coded("no-optimal-point", text))
        if far:
            warn(
                "risk-falls-far-out",
                "optimal_point: from some starts the performative risk keeps falling far out; the point "
                "returned is a local minimum. Give the problem a domain, such as pf.Box(lo, hi).",
            )
        best, *others = sorted(known, key=lambda point: point.risk)
        check_rest(land.problem, land.model(land.flat(best.theta)), land.model(origin))
        return dataclasses.replace(best, others=tuple(others)) if report else best.theta


def _local_minima(
    land: Landscape, view: View, origin: np.ndarray, starts: Sequence[np.ndarray]
) -> tuple[list[Solution], bool, float]:
    """Different points where descent ended, whether one descent ran away, and the least residual."""
    known: list[Solution] = []
    vectors: list[np.ndarray] = []
    far, least = False, np.inf
    everywhere = land.domain is None
    for start in starts:
        x = minimise(land, view, start)
        if escaped(start, x) or (everywhere and faded(view, origin, x)):
            far = True
            continue
        point = Solution(land.shaped(x), natural_residual(land, view, x), "descent through the map", view.value(x))
        least = min(least, point.residual)
        if is_new(view, x, vectors) and (not everywhere or _curves_up(view, x)):
            vectors.append(x)
            known.append(point)
    return known, far, least


def _starting_points(
    problem: Problem, land: Landscape, origin: np.ndarray, starts: Sequence[Any] | int | None
) -> list[np.ndarray]:
    if starts is None:
        starts = _STARTS if land.dense else 0
    if isinstance(starts, int):
        if starts < 0:
            raise ValueError(f"starts must be a list of models, or how many to scatter; got {starts}.")
        return [origin, *scatter(land, origin, starts)]
    return [origin, *(survey(problem, theta)[1] for theta in starts)]


def _curves_up(view: View, x: np.ndarray) -> bool:
    """Whether no direction of downward curvature starts at x."""
    hessian = view.slope(x)
    if hessian is None:
        return True
    values = np.linalg.eigvalsh(hessian)
    return bool(values[0] >= -1e-9 * max(abs(values[-1]), 1e-300))

"""Performatively optimal points: where the risk on the data that theta induces is minimal."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from performative._base.arguments import checked
from performative._base.messages import coded, warn
from performative.facts import cites
from performative.problem import Problem
from performative.solve.landscape import Landscape, View, survey
from performative.solve.minimize import minimize, nearer
from performative.solve.probes import lower_afar, lower_beside
from performative.solve.roots import TOLERANCE, allowed, escaped, faded, is_new, natural_residual, scatter
from performative.solve.sampling import check_samples, point_error, tell_error
from performative.solve.solution import Solution
from performative.solve.worlds import check_rest
from performative.types import Theta

_STARTS = 6
# How often a search continues from a lower point next to a saddle, or far from the best point.
_TURNS = 5


@cites("perdomo2020performative", "miller2021outside")
@checked
def optimal_point(
    problem: Problem,
    start: Theta = None,
    starts: Sequence[Any] | int | None = None,
    report: bool = False,
    tolerance: float = TOLERANCE,
    *,
    samples: int | None = None,
    time: float | None = None,
) -> Theta | Solution:
    """theta_PO = argmin_theta f(theta; theta), in closed form if the population has one.

    Otherwise the performative risk is minimized with its exact gradient, which passes through the distribution map (a
    sample is a pushforward of randomness independent of theta). The risk need not be convex, so this is done from
    several starts: `start` (None for zeros) and, in `starts`, a list of models or a number of scattered ones. The best
    is returned; report=True returns a `Solution` with the other local optima in `others`. None is proved to be global:
    a sideways step leaves saddles and maxima, and the risk is also checked far away; if it is lower there, the search
    continues (None), or a warning says so (`starts` given). `samples` and `time` as in `stable_point`.
    """
    problem = problem if time is None else problem.at(time)
    with jax.enable_x64(True):
        land, origin = survey(problem, start, samples=check_samples(samples), name="start")
        view = land.performative()
        points = _starting_points(problem, land, origin, starts)
        closed = land.inside(problem.population.optimal_point(problem.loss, np.asarray(problem.client_weights)))
        if closed is not None:
            check_rest(land.problem, land.model(closed), land.model(origin))
            better = _check_closed(land, view, closed, tolerance)
            if better is None:
                value, residual = view.value(closed), natural_residual(land, view, closed)
                best = Solution(land.shaped(closed), residual, "closed form", value, 0.0)
                return best if report else best.theta
            points = [better, *points]
        view = view.compiled(points[0])
        points = nearer(land, Landscape.performative, points)
        known, far, least = local_minima(land, view, origin, points, tolerance, search=starts is None)
        if not known:
            why = "it keeps decreasing far out" if far else f"the smallest residual is {least:.3g}"
            text = (
                f"optimal_point: no minimizer of the performative risk was found: {why}. "
                "Set a domain on the problem, such as pf.Box(lo, hi), or other `starts`."
            )
            raise ValueError(coded("no-optimal-point", text))
        if far:
            warn(
                "risk-falls-far-out",
                "optimal_point: from some starts the performative risk keeps decreasing far out; the point "
                "returned is a local minimum. Set a domain on the problem, such as pf.Box(lo, hi).",
            )
        best, *others = sorted(known, key=lambda point: point.risk)
        x = land.flat(best.theta)
        elsewhere = None if far else lower_afar(land, view, x)
        if elsewhere is not None:
            warn("lower-elsewhere", f"optimal_point: the point is a local minimum; {_than(view, elsewhere, x)}.")
        check_rest(land.problem, land.model(x), land.model(origin))
        error = point_error(land, Landscape.performative, x)
        if not report:
            tell_error("optimal_point: the point", error, best.theta)
            return best.theta
        return dataclasses.replace(best, error=error, others=tuple(others))


def _check_closed(land: Landscape, view: View, closed: np.ndarray, tolerance: float) -> np.ndarray | None:
    """Warn if the gradient at the population's own point is not zero; return a lower point if it is not a minimum."""
    residual = natural_residual(land, view, closed)
    if residual > allowed(view, closed, max(tolerance, 1e-6)):
        warn(
            "closed-form-disagrees",
            f"optimal_point: the gradient of the performative risk at the closed form is {residual:.3g}, not 0. "
            "Check the population's optimal_point, or define an exact `quadrature` for it.",
        )
        return None
    lower = lower_beside(land, view, closed)
    if lower is None:
        lower = lower_afar(land, view, closed)
    if lower is not None:
        warn(
            "closed-form-disagrees",
            f"optimal_point: the closed form is not the minimizer of the risk; {_than(view, lower, closed)}. The "
            "result of a search is used instead.",
        )
    return lower


def _than(view: View, lower: np.ndarray, x: np.ndarray) -> str:
    where = np.array2string(lower, precision=4, threshold=6)
    return f"the risk is {view.value(x):.6g} there and {view.value(lower):.6g} at theta = {where}"


def local_minima(
    land: Landscape, view: View, origin: np.ndarray, starts: Sequence[np.ndarray], tolerance: float, search: bool
) -> tuple[list[Solution], bool, float]:
    """Distinct points where descent ended, whether one descent diverged, and the smallest residual.

    If it ended at a saddle or a maximum, it continues next to it; with `search` also from far away, if the risk is
    lower there than at the best point so far.
    """
    known: list[Solution] = []
    vectors: list[np.ndarray] = []
    far, least = False, np.inf

    def descend(start: np.ndarray) -> None:
        nonlocal far, least
        for _ in range(_TURNS):
            x = minimize(land, view, start)
            if escaped(start, x) or (land.domain is None and faded(view, origin, x)):
                far = True
                return
            residual = natural_residual(land, view, x)
            least = min(least, residual)
            if residual > allowed(view, x, tolerance) or not is_new(view, x, vectors):
                return
            beside = lower_beside(land, view, x)
            if beside is None:
                vectors.append(x)
                known.append(Solution(land.shaped(x), residual, "descent through the map", view.value(x)))
                return
            start = beside

    for start in starts:
        descend(start)
    for _ in range(_TURNS if search else 0):
        best = min(vectors, key=view.value, default=None)
        afar = None if best is None or far else lower_afar(land, view, best)
        if afar is None:
            break
        descend(afar)
    return known, far, least


def _starting_points(
    problem: Problem, land: Landscape, origin: np.ndarray, starts: Sequence[Any] | int | None
) -> list[np.ndarray]:
    if starts is None:
        starts = _STARTS if land.dense else 0
    if isinstance(starts, int):
        if starts < 0:
            raise ValueError(f"starts must be a list of models, or the number to scatter; got {starts}.")
        return [origin, *scatter(land, origin, starts)]
    return [origin, *(survey(problem, theta, name="starts")[1] for theta in starts)]

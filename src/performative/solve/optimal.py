"""Performatively optimal points: where the risk that theta brings about is least."""

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from performative.problem import Problem
from performative.solve.landscape import Landscape, View, survey
from performative.solve.minimise import minimise
from performative.solve.roots import TOLERANCE, allowed, is_new, natural_residual, scatter
from performative.solve.solution import Solution
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

    Else the performative risk is minimised by its exact gradient, which goes through the distribution map (a sample is a
    pushforward of randomness that does not know theta). The risk need not be convex, so this is done from several
    starts: `start` (None for zeros) and, in `starts`, a list of models or a number of scattered ones. The best is
    taken; with report=True a `Solution` also holds the other local optima in `others`. None is proved to be global.
    """
    with jax.enable_x64(True):
        land, origin = survey(problem, start)
        view = land.performative()
        closed = _closed_form(problem, land)
        if closed is not None:
            best = _solution(land, view, closed, "closed form")
            if best.residual > allowed(closed, max(tolerance, 1e-6)):
                warnings.warn(
                    f"optimal_point: the gradient of the performative risk at the closed form is {best.residual:.3g}, not 0. "
                    "Check the population's optimal_point, or give it `nodes` that are exact.",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return best if report else best.theta
        known: list[Solution] = []
        vectors: list[np.ndarray] = []
        least = np.inf
        for x in _starting_points(problem, land, origin, starts):
            found = minimise(land, view, x)
            residual = natural_residual(land, view, found)
            least = min(least, residual)
            if (
                residual <= allowed(found, tolerance)
                and is_new(found, vectors)
                and _is_minimum(land, view, found)
            ):
                vectors.append(found)
                known.append(_solution(land, view, found, "minimisation through the map"))
        if not known:
            raise ValueError(
                f"optimal_point: no minimiser of the performative risk was found; the least residual is {least:.3g}. "
                "The risk may fall without bound: give the problem a domain, or other `starts`."
            )
        best, *others = sorted(known, key=lambda point: point.risk)
        return dataclasses.replace(best, others=tuple(others)) if report else best.theta


def _starting_points(
    problem: Problem, land: Landscape, origin: np.ndarray, starts: Sequence[Any] | int | None
) -> list[np.ndarray]:
    if starts is None:
        starts = _STARTS if land.dense else 0
    if isinstance(starts, int):
        if starts < 0:
            raise ValueError(
                f"starts must be a list of models or a number >= 0 of further starts; got {starts}."
            )
        return [origin, *scatter(land, origin, starts)]
    return [origin, *(survey(problem, theta)[1] for theta in starts)]


def _closed_form(problem: Problem, land: Landscape) -> np.ndarray | None:
    """The population's own formula, where it has one and the point lies in the domain."""
    theta = problem.population.optimal_point(problem.loss, np.asarray(problem.client_weights))
    if theta is None:
        return None
    x = land.flat(theta)
    return (
        x if np.max(np.abs(land.project(x) - x), initial=0.0) <= 1e-12 * (1.0 + np.max(np.abs(x))) else None
    )


def _solution(land: Landscape, view: View, x: np.ndarray, method: str) -> Solution:
    return Solution(land.shaped(x), natural_residual(land, view, x), method, view.value(x))


def _is_minimum(land: Landscape, view: View, x: np.ndarray) -> bool:
    """Whether no direction of downward curvature starts at x. With a domain descent has ended there, which is enough."""
    hessian = view.slope(x)
    if hessian is None or land.problem.domain is not None:
        return True
    values = np.linalg.eigvalsh(hessian)
    return bool(values[0] >= -1e-9 * max(abs(values[-1]), 1e-300))

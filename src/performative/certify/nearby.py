"""What derivatives at a point do not see: data that jump, and a lower minimum elsewhere."""

from typing import Any

import numpy as np

from performative.facts import declared
from performative.solve.landscape import Landscape
from performative.solve.minimize import minimize, nearer
from performative.solve.roots import escaped, scatter

# Distances from the point in units of 1 + |x|, and the allowed deviation from the derivative's prediction there, as a
# fraction of the curvature. For a smooth reaction it is of second order in the distance.
_STEPS = ((1e-2, 0.1), (1e-1, 0.5))
_FLAT = ((1e-2, 0.02),)
_DIRECTIONS, _STARTS = 4, 8
# A risk counts as lower elsewhere if it is lower by more than this fraction of itself.
_LOWER = 1e-8


def reaction_jumps(land: Landscape, x: np.ndarray, curvature: np.ndarray | None) -> bool:
    """Whether the data react differently from the sample's derivative; `curvature` is that of f at (x, x).

        |grad_1 f(x; b) - grad_1 f(x; a) - C (b - a)| > tolerance max(|H|, |C|) |b - a|,      a, b on both sides of x

    This happens when people cross a threshold of the model: each sample stays or jumps, and its derivative is 0.
    """
    if curvature is None or not np.all(np.isfinite(curvature)):
        return False
    d = land.size
    H, C = curvature[:d, :d], curvature[:d, d:]
    scale = max(np.linalg.norm(H, 2), np.linalg.norm(C, 2))
    for a, b, tolerance in _pairs(land, x):
        change = land.value(x, b)[1][:d] - land.value(x, a)[1][:d]
        if np.linalg.norm(change - C @ (b - a)) > tolerance * scale * np.linalg.norm(b - a):
            return True
    return False


def risk_still_falls(land: Landscape, x: np.ndarray) -> bool:
    """Whether the performative risk is not flat at x, where gradient descent ended inside the domain.

    |f(b; b) - f(a; a)| / |b - a| > tolerance |d^2 f(theta; theta)| (1 + |x|)
    """
    view = land.performative()
    slope = view.slope(x)
    if slope is None or not np.all(np.isfinite(slope)) or np.max(np.abs(view.gradient(x))) > 1e-6:
        return False
    scale = np.linalg.norm(slope, 2) * (1.0 + np.linalg.norm(x))
    return any(
        abs(view.value(b) - view.value(a)) > tolerance * scale * np.linalg.norm(b - a)
        for a, b, tolerance in _pairs(land, x, _FLAT)
    )


def lower_minimum(land: Landscape, x: np.ndarray) -> np.ndarray | None:
    """A model with a lower risk than x on the data of x, so x is only a local minimum there; None if none was found."""
    if declared(land.problem.loss, "convex") or not land.dense:
        return None
    view = land.decoupled(x)
    level = view.value(x)
    for start in nearer(land, lambda land: land.decoupled(x), scatter(land, x, _STARTS)):
        found = minimize(land, view, start)
        if not escaped(start, found) and view.value(found) < level - _LOWER * (1.0 + abs(level)):
            return found
    return None


def _pairs(land: Landscape, x: np.ndarray, steps: Any = _STEPS) -> Any:
    """Models on both sides of x, and the tolerance there."""
    rng = np.random.default_rng(0)
    for _ in range(1 if len(x) == 1 else _DIRECTIONS):
        way = rng.standard_normal(len(x))
        way /= np.linalg.norm(way)
        for reach, tolerance in steps:
            length = reach * (1.0 + np.linalg.norm(x))
            a, b = land.project(x - length * way), land.project(x + length * way)
            if np.any(a != b):
                yield a, b, tolerance

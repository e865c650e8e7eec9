"""Whether the risk is lower than at the end point of a descent: right next to it, or far away."""

import numpy as np

from performative._engine.risk import count_nodes
from performative.solve.landscape import Landscape, View
from performative.solve.roots import natural_residual

# Steps away from a point, in units of 1 + |x|: next to it, and far from it.
_BESIDE, _AFAR = (1e-3, 1e-2, 1e-1), (3.0, 3e1, 3e2, 3e4, 3e6)
# The same for cheap problems.
_EVERYWHERE = tuple(np.geomspace(0.25, 256.0, 31)) + _AFAR[-2:]
# A curvature below this fraction of the largest counts as zero: the value decides.
_FLAT = 1e-6
_DIRECTIONS, _INSIDE = 8, 64
# If one pass over all clients takes more samples than these, few steps or none are probed.
_QUICK, _COSTLY = 1 << 14, 1 << 22


def lower_beside(land: Landscape, view: View, x: np.ndarray) -> np.ndarray | None:
    """A lower point close to x, along directions in which the risk does not curve up: then x is not a minimum."""
    if _costly(land):
        return None
    hessian = view.slope(x)
    if hessian is None or not np.all(np.isfinite(hessian)):
        directions = _random(len(x), _DIRECTIONS)
    else:
        values, vectors = np.linalg.eigh((hessian + hessian.T) / 2)
        directions = vectors[:, values <= _FLAT * np.max(np.abs(values))].T[:_DIRECTIONS]
    ways = [sign * step * way for step in _BESIDE for way in directions for sign in (1.0, -1.0)]
    return _lowest(land, view, x, ways)


def lower_afar(land: Landscape, view: View, x: np.ndarray) -> np.ndarray | None:
    """A lower point far from x: along the axes and at random, over a bounded Box evenly."""
    if _costly(land):
        return None
    bounds = land.bounds()
    if bounds is not None and np.all(np.isfinite(bounds)):
        lo, hi = bounds
        spread = np.random.default_rng(1).uniform(size=(_INSIDE, len(x)))
        return _lowest(land, view, x, [(lo + (hi - lo) * share - x) / _scale(x) for share in spread])
    directions = np.concatenate([np.eye(len(x))[:_DIRECTIONS], _random(len(x), 2 if len(x) > 1 else 0)])
    steps = _EVERYWHERE if _samples(land) * len(directions) <= _QUICK else _AFAR
    return _lowest(land, view, x, [s * step * way for step in steps for way in directions for s in (1.0, -1.0)])


def _lowest(land: Landscape, view: View, x: np.ndarray, ways: list[np.ndarray]) -> np.ndarray | None:
    """The lowest of the points x + (1 + |x|) way, None if none is lower than x by more than roundoff."""
    if not len(ways):
        return None
    value, slope = view.value(x), natural_residual(land, view, x)
    with np.errstate(all="ignore"):
        points = np.stack([land.project(x + _scale(x) * way) for way in ways])
        # A gradient that is not exactly zero lets the value fall a little, which says nothing about the curvature.
        slack = 1e-11 * (1.0 + abs(value)) + 10.0 * slope * np.linalg.norm(points - x, axis=1)
        risks = land.risks(points)
        lower = np.where(risks < value - slack, risks, np.inf)
    return points[lower.argmin()] if np.isfinite(lower.min()) or np.any(lower == -np.inf) else None


def _scale(x: np.ndarray) -> float:
    return 1.0 + float(np.max(np.abs(x), initial=0.0))


def _random(size: int, count: int) -> np.ndarray:
    ways = np.random.default_rng(0).standard_normal((count, size))
    return ways / np.linalg.norm(ways, axis=1, keepdims=True)


def _samples(land: Landscape) -> int:
    return land.problem.clients * count_nodes(land.problem, land.one, land.samples)


def _costly(land: Landscape) -> bool:
    return _samples(land) > _COSTLY

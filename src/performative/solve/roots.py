"""Roots of the natural map x - P(x - g(x)): zeros of g, with a domain fixed points of the projected step."""

from collections.abc import Sequence

import numpy as np

from performative.solve.landscape import Landscape, View

# Default for the largest residual that counts as zero.
TOLERANCE = 1e-8
# Some thousand units in the last place: sums over clients and samples lose a few digits.
_ROUNDING = 1e-12
# A point that lies this much further out than the start is on its way to infinity.
_FAR = 1e8
_POLISHING_STEPS = 20
_WALK_STEPS = 400
# Distances from the start at which further starts lie, in units of 1 + |start|.
_RANGES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


def natural_residual(land: Landscape, view: View, x: np.ndarray) -> float:
    """max |x - P(x - g(x))|, infinite if g is NaN. Without a domain this is max |g(x)|."""
    gap = natural_map(land, view, 1.0, x)
    return float(np.max(np.abs(gap), initial=0.0)) if np.all(np.isfinite(gap)) else np.inf


def allowed(view: View, x: np.ndarray, tolerance: float = TOLERANCE) -> float:
    """The residual that counts as zero at x: the tolerance, plus roundoff if slope or x are large."""
    slope = view.slope(x)
    steep = 1.0 if slope is None else float(np.linalg.norm(slope))
    return tolerance + _ROUNDING * steep * (1.0 + float(np.max(np.abs(x), initial=0.0)))


def natural_map(land: Landscape, view: View, step: float, x: np.ndarray) -> np.ndarray:
    """(x - P(x - step g)) / step. Without a domain this is g itself."""
    g = view.gradient(x)
    return g if land.domain is None else (x - land.project(x - step * g)) / step


def natural_slope(land: Landscape, view: View, step: float, x: np.ndarray) -> np.ndarray:
    """The derivative of the natural map."""
    slope = view.slope(x)
    if land.domain is None:
        return slope
    eye = np.eye(len(x))
    inner = x - step * view.gradient(x)
    return (eye - land.project_slope(inner) @ (eye - step * slope)) / step


def safe_step(slope: np.ndarray | None) -> float:
    """1 / |slope|, a step at which a gradient step does not overshoot."""
    norm = 1.0 if slope is None or not np.all(np.isfinite(slope)) else float(np.linalg.norm(slope, 2))
    return 1.0 / norm if norm > 1e-12 else 1.0


class _Met(Exception):
    """A search has reached a known root; its argument is the location."""


def polish(land: Landscape, view: View, x: np.ndarray, known: Sequence[np.ndarray] = ()) -> np.ndarray:
    """Newton steps on the natural map while they reduce the residual, or until they reach a known root."""
    best = natural_residual(land, view, x)
    for _ in range(_POLISHING_STEPS):
        if best == 0.0 or meets(x, known):
            break
        slope = view.slope(x)
        if slope is None:
            break
        step = safe_step(slope)
        derivative = natural_slope(land, view, step, x)
        if not np.all(np.isfinite(derivative)):
            break
        # The shortest step: it has no component along directions in which nothing changes.
        newton = np.linalg.lstsq(derivative, natural_map(land, view, step, x), rcond=1e-10)[0]
        moved = land.project(x - newton)
        after = natural_residual(land, view, moved) if np.all(np.isfinite(moved)) else np.inf
        if not after < best:
            break
        x, best = moved, after
    return x


def find_root(
    land: Landscape, view: View, start: np.ndarray, known: Sequence[np.ndarray] = ()
) -> tuple[np.ndarray, float]:
    """A root of the natural map near `start`, and its residual (which may be large: the caller checks).

    Newton steps; if they fail, MINPACK's hybrid method with the exact derivative and Newton steps again. Above DENSE
    parameters Newton-Krylov, which needs no matrix. A search stops once it is so close to one of the `known` roots that
    `is_new` would identify the two.
    """
    with np.errstate(all="ignore"):
        x = polish(land, view, start, known)
        if not meets(x, known) and natural_residual(land, view, x) > allowed(view, x):
            try:
                x = _solve(land, view, start, known)
            except _Met as met:
                x = met.args[0]
        return x, natural_residual(land, view, x)


def walk(land: Landscape, view: View, x: np.ndarray) -> np.ndarray:
    """Damped fixed-point steps x <- P(x - step g), the step halved when the residual grows.

    It leads to points that attract small gradient steps, and gets close when Newton's method fails.
    """
    step = safe_step(view.slope(x))
    residual = natural_residual(land, view, x)
    for _ in range(_WALK_STEPS):
        if residual < 1e-6:
            break
        moved = land.project(x - step * view.gradient(x))
        after = natural_residual(land, view, moved) if np.all(np.isfinite(moved)) else np.inf
        if after > 2.0 * residual:
            step *= 0.5
        else:
            x, residual = moved, after
    return x


def bracketed_roots(land: Landscape, view: View, points: Sequence[np.ndarray]) -> list[np.ndarray]:
    """One dimension: a root between each pair of neighboring points at which the natural map changes sign."""
    from scipy import optimize

    def value(x: float) -> float:
        return float(natural_map(land, view, 1.0, land.project(np.asarray([x])))[0])

    grid = np.unique(np.concatenate(points))
    heights = [value(x) for x in grid]
    pairs = zip(grid[:-1], grid[1:], heights[:-1], heights[1:], strict=True)
    signs = [(a, b) for a, b, low, high in pairs if low * high < 0 and np.isfinite(low) and np.isfinite(high)]
    return [np.asarray([optimize.brentq(value, a, b, xtol=1e-14)]) for a, b in signs]


def scatter(land: Landscape, start: np.ndarray, count: int) -> list[np.ndarray]:
    """`count` further starts: evenly over a bounded Box, otherwise around `start` at growing distances."""
    rng = np.random.default_rng(0)
    bounds = land.bounds()
    if bounds is not None and np.all(np.isfinite(bounds)):
        lo, hi = bounds
        inside = [lo + (hi - lo) * rng.uniform(size=len(start)) for _ in range(max(count - 2, 0))]
        return [lo, hi, *inside][:count]
    scale = 1.0 + float(np.linalg.norm(start))
    out = []
    for number in range(count):
        direction = rng.standard_normal(len(start))
        if len(start) == 1:
            direction = np.asarray([1.0 if number % 2 else -1.0])
        reach = _RANGES[(number // 2) % len(_RANGES)]
        out.append(land.project(start + scale * reach * direction / np.linalg.norm(direction)))
    return out


def meets(x: np.ndarray, known: Sequence[np.ndarray]) -> bool:
    """Whether x is one of the known points, up to the distance between two searches for the same root."""
    near = 1e-6 * (1.0 + np.max(np.abs(x), initial=0.0))
    return any(bool(np.max(np.abs(x - other), initial=0.0) <= near) for other in known)


def is_new(view: View, x: np.ndarray, known: Sequence[np.ndarray]) -> bool:
    """Whether x differs from all known points, and not only along directions in which nothing changes."""
    if meets(x, known):
        return False
    slope = view.slope(x) if len(known) else None
    for other in known:
        way = x - other
        if slope is not None and np.linalg.norm(slope @ way) <= 1e-7 * np.linalg.norm(slope) * np.linalg.norm(way):
            return False
    return True


def escaped(start: np.ndarray, x: np.ndarray) -> bool:
    """Whether a search has become non-finite, or gone too far to find what it is looking for."""
    way = np.max(np.abs(x - start), initial=0.0)
    return not bool(way <= _FAR * (1.0 + np.max(np.abs(start), initial=0.0)))


def faded(view: View, origin: np.ndarray, x: np.ndarray) -> bool:
    """Whether g is small at x only because it vanishes at infinity, as for a saturating loss."""
    first, last = view.slope(origin), view.slope(x)
    return first is not None and bool(np.linalg.norm(last) < 1e-8 * np.linalg.norm(first))


def _solve(land: Landscape, view: View, start: np.ndarray, known: Sequence[np.ndarray]) -> np.ndarray:
    from scipy import optimize

    step = safe_step(view.slope(start))

    def value(x: np.ndarray) -> np.ndarray:
        if meets(x, known):
            raise _Met(land.project(np.array(x)))
        return np.nan_to_num(natural_map(land, view, step, x), nan=1e100, posinf=1e100, neginf=-1e100)

    def slope(x: np.ndarray) -> np.ndarray:
        return np.nan_to_num(natural_slope(land, view, step, x))

    if land.dense:
        found = optimize.root(value, start, jac=slope, method="hybr", options={"xtol": 1e-13, "maxfev": 200}).x
    else:
        found = optimize.root(value, start, method="krylov", options={"fatol": 1e-10, "maxiter": 200}).x
    found = land.project(np.asarray(found, np.float64))
    return polish(land, view, found, known) if np.all(np.isfinite(found)) else start

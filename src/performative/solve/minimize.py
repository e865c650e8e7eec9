"""Minimizers of one function over the domain."""

import warnings
from collections.abc import Callable

import numpy as np

from performative.solve.landscape import Landscape, View
from performative.solve.roots import escaped, is_new, natural_residual, polish, safe_step

_NEWTON_STEPS = 200
# A Newton step shorter than this fraction counts as negligible, and how many of these are taken.
_CREEPING, _PATIENCE = 2.0**-20, 2
# Projected gradient steps before Newton is tried again, and how often to repeat.
_PROJECTED_STEPS = 50
_TURNS = 40


class _Escaped(Exception):
    """A search has diverged; its argument is how far it got."""


def minimize(land: Landscape, view: View, start: np.ndarray) -> np.ndarray:
    """A local minimizer near `start`, to machine accuracy; the caller checks the residual.

    Everywhere: Newton with line search while the function curves up, else BFGS and then Newton.
    Box: L-BFGS-B. Other domains: projected gradient. Both are followed by Newton steps on the natural map. If the
        search diverges, the result is how far it got: see `escaped`.
    """
    with np.errstate(all="ignore"), warnings.catch_warnings():
        # Numbers overflow on the way to a minimizer that does not exist.
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            return _everywhere(land, view, start) if land.domain is None else _within(land, view, start)
        except _Escaped as far:
            return far.args[0]


def nearer(land: Landscape, view_of: Callable[[Landscape], View], starts: list[np.ndarray]) -> list[np.ndarray]:
    """On a large table, where a subset of rows leads from each start; the start if that is no better on all rows."""
    rough = land.rough()
    if rough is land:
        return starts
    whole, outline = view_of(land), view_of(rough)
    ends: list[np.ndarray] = []
    for start in starts:
        x = minimize(rough, outline, start)
        better = not escaped(start, x) and whole.value(x) <= whole.value(start)
        if not better or is_new(outline, x, ends):
            ends.append(x if better else start)
    return ends


def _everywhere(land: Landscape, view: View, start: np.ndarray) -> np.ndarray:
    from scipy import optimize

    x, convex = newton(view, start) if land.dense else (start, False)
    if convex:
        return x
    method = "BFGS" if land.dense else "L-BFGS-B"
    watched = _watched(view, start)
    found = optimize.minimize(watched, start, jac=True, method=method, options={"gtol": 1e-9}).x
    return newton(view, found)[0] if land.dense else np.asarray(found)


def _within(land: Landscape, view: View, start: np.ndarray) -> np.ndarray:
    from scipy import optimize

    bounds = land.bounds()
    if bounds is None:
        return _by_projection(land, view, start)
    finite = bool(np.all(np.isfinite(bounds)))
    found = optimize.minimize(
        _watched(view, None if finite else start), start, jac=True, method="L-BFGS-B",
        bounds=optimize.Bounds(*bounds), options={"gtol": 1e-10, "ftol": 1e-15, "maxiter": 2000},
    ).x  # fmt: skip
    return _finish(land, view, land.project(np.asarray(found)))


def _by_projection(land: Landscape, view: View, start: np.ndarray) -> np.ndarray:
    """Over any convex set: unconstrained if the minimizer lies inside, else alternate projected gradient and Newton."""
    try:
        free = _everywhere(land, view, start)
        if np.array_equal(land.project(free), free):
            return free
    except _Escaped:
        pass
    x = start
    for _ in range(_TURNS):
        x = projected_gradient(land, view, x)
        better = _finish(land, view, x)
        if natural_residual(land, view, better) <= 1e-10:
            return better
    return x


def _finish(land: Landscape, view: View, x: np.ndarray) -> np.ndarray:
    """Newton steps, kept only if the value does not increase: they may climb to a saddle or a maximum."""
    better, level = polish(land, view, x), view.value(x)
    return x if view.value(better) > level + 1e-9 * (1.0 + abs(level)) else better


def _watched(view: View, start: np.ndarray | None) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """Value and gradient for scipy, which give up if the search diverges from `start`."""

    def both(x: np.ndarray) -> tuple[float, np.ndarray]:
        if start is not None and escaped(start, x):
            raise _Escaped(np.array(x))
        return view.value(x), view.gradient(x)

    return both


def newton_step(hessian: np.ndarray, g: np.ndarray) -> np.ndarray | None:
    """The shortest step with H step = g; None if H has negative curvature, or is flat along a component of g."""
    if not (np.all(np.isfinite(hessian)) and np.all(np.isfinite(g))):
        return None
    values, vectors = np.linalg.eigh(hessian)
    flat = values <= 1e-12 * abs(values[-1])
    along = vectors.T @ g
    if values[0] < -1e-10 * abs(values[-1]) or np.linalg.norm(along[flat]) > 1e-8 * np.linalg.norm(g):
        return None
    return vectors[:, ~flat] @ (along[~flat] / values[~flat])


def newton(view: View, x: np.ndarray) -> tuple[np.ndarray, bool]:
    """Newton steps with halving. False if the function does not curve up or no step helped.

    If jumps hide the function's decrease from its derivatives, steps shrink to nothing: a few of these end the search.
    """
    creeping = 0
    for _ in range(_NEWTON_STEPS):
        value, g, hessian = view.value(x), view.gradient(x), view.slope(x)
        if not np.any(g):
            return x, True
        step = newton_step(hessian, g)
        if step is None:
            return x, False
        size, gain = 1.0, float(g @ step)
        # Once the gain is mere roundoff the gradient decides, and a single try is enough.
        rounding = gain <= 8.0 * np.finfo(np.float64).eps * (1.0 + abs(value))
        for _ in range(1 if rounding else 60):
            moved = x - size * step
            falls = not rounding and view.value(moved) <= value - 1e-4 * size * gain
            if falls or np.linalg.norm(view.gradient(moved)) <= 0.5 * np.linalg.norm(g):
                break
            size *= 0.5
        else:
            return x, True  # no step improves on x: it is at machine accuracy
        x, creeping = moved, creeping + (size < _CREEPING)
        if creeping > _PATIENCE:
            break
    return x, False


def projected_gradient(land: Landscape, view: View, x: np.ndarray) -> np.ndarray:
    """x <- P(x - step g) with a step that doubles after success and halves until the value falls."""
    step = safe_step(view.slope(x))
    for _ in range(_PROJECTED_STEPS):
        if natural_residual(land, view, x) < 1e-9:
            break
        value, g = view.value(x), view.gradient(x)
        for _ in range(60):
            moved = land.project(x - step * g)
            if view.value(moved) <= value - 1e-4 * np.sum((moved - x) ** 2) / step:
                break
            step *= 0.5
        else:
            break
        x = moved
        step *= 2.0
    return x

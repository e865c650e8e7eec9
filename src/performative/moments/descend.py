"""Minimize a differentiable function that is infinite where something does not settle."""

from collections import deque
from collections.abc import Callable

import numpy as np

# Number of stored pairs of steps and gradient changes.
_MEMORY = 30
_HALVINGS = 40
# Fraction of the predicted decrease that a step must achieve.
_ENOUGH = 1e-4

Function = Callable[[np.ndarray], tuple[float, np.ndarray]]


def descend(
    function: Function, start: np.ndarray, iterations: int, tolerance: float
) -> tuple[np.ndarray, float, np.ndarray, list[float]]:
    """L-BFGS with halved steps: the point, its value, its gradient, and the value after each iteration.

    Nocedal and Wright 2006, Algorithm 7.4. Steps into regions of infinite value are halved, like those with
    insufficient decrease.
    """
    x = start
    value, gradient = function(x)
    path, pairs = [value], deque[tuple[np.ndarray, np.ndarray]](maxlen=_MEMORY)
    for _ in range(iterations):
        if not np.isfinite(value) or np.abs(gradient).max(initial=0.0) <= tolerance:
            break
        direction = -_inverse_hessian(pairs, gradient)
        slope = float(direction @ gradient)
        if slope >= 0:
            pairs.clear()
            direction, slope = -gradient, -float(gradient @ gradient)
        # The very first step has length at most one.
        length = 1.0 if pairs else min(1.0, 1.0 / float(np.abs(gradient).max()))
        found = _halved(function, x, value, direction, slope, length)
        if found is None:
            if not pairs:
                break
            pairs.clear()
            continue
        new, new_value, new_gradient = found
        step, change = new - x, new_gradient - gradient
        if float(step @ change) > 1e-12 * float(np.linalg.norm(step) * np.linalg.norm(change)):
            pairs.append((step, change))
        x, value, gradient = new, new_value, new_gradient
        path.append(value)
    return x, value, gradient, path


def _halved(
    function: Function, x: np.ndarray, value: float, direction: np.ndarray, slope: float, length: float
) -> tuple[np.ndarray, float, np.ndarray] | None:
    """The first step, under repeated halving, with sufficient decrease; None if there is none, up to roundoff."""
    for _ in range(_HALVINGS):
        new = x + length * direction
        new_value, gradient = function(new)
        within = _ENOUGH * length * slope
        # Near the minimum differences of values are roundoff: a smaller gradient decides.
        level = abs(new_value - value) <= 1e-13 * max(1.0, abs(value)) and abs(float(direction @ gradient)) < abs(slope)
        if np.isfinite(new_value) and (new_value <= value + within or level):
            return new, new_value, gradient
        length /= 2
    return None


def _inverse_hessian(pairs: deque[tuple[np.ndarray, np.ndarray]], gradient: np.ndarray) -> np.ndarray:
    """The inverse Hessian of the stored pairs applied to a gradient, by the two-loop recursion."""
    q, shares = gradient.copy(), []
    for step, change in reversed(pairs):
        share = float(step @ q) / float(step @ change)
        q -= share * change
        shares.append(share)
    if pairs:
        step, change = pairs[-1]
        q *= float(step @ change) / float(change @ change)
    for (step, change), share in zip(pairs, reversed(shares), strict=True):
        q += (share - float(change @ q) / float(step @ change)) * step
    return q

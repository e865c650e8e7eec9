"""Confidence sequences by inversion: all strengths that the evidence has not ruled out."""

from collections.abc import Callable

import numpy as np

# Doublings of the standard error, and halvings of the last step, in the search for an endpoint.
_DOUBLINGS, _HALVINGS = 40, 40


def invert(
    log_evidence: Callable[[np.ndarray], np.ndarray], center: np.ndarray, scale: np.ndarray, alpha: float
) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest strength with log E(strength) < log 1/alpha; infinite if no endpoint is found.

    The probability that the truth is outside at any look is at most alpha, since E(truth) ever reaches 1/alpha with at
    most that probability.

    Args:
        log_evidence: from strengths [...] to log E [...]
        center: [...] where the search starts; scale: [...] its first step
    """
    limit = np.log(1 / alpha)
    known = np.isfinite(center) & np.isfinite(scale) & (scale > 0)
    center, scale = np.where(known, center, 0.0), np.where(known, scale, 1.0)
    ends = []
    for sign in (-1.0, 1.0):
        inner, outer = np.zeros_like(center), np.full_like(center, np.inf)
        step = scale.copy()
        for _ in range(_DOUBLINGS):
            ruled_out = log_evidence(center + sign * step) >= limit
            outer = np.where(ruled_out & np.isinf(outer), step, outer)
            inner = np.where(ruled_out | np.isfinite(outer), inner, step)
            step = 2 * step
            if np.all(np.isfinite(outer)):
                break
        for _ in range(_HALVINGS):
            middle = np.where(np.isfinite(outer), 0.5 * (inner + outer), inner)
            ruled_out = log_evidence(center + sign * middle) >= limit
            outer = np.where(np.isfinite(outer) & ruled_out, middle, outer)
            inner = np.where(np.isfinite(outer) & ~ruled_out, middle, inner)
        ends.append(np.where(known, center + sign * outer, sign * np.inf))
    return ends[0], ends[1]

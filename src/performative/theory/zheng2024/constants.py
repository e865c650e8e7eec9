"""The constants that the lemmas of PROFL assume, and where they come from.

Zheng et al. 2024, Lemmas 5.6 and C.3.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from performative._base.arguments import Count, Extended, checked
from performative.theory.bound import broken
from performative.theory.index import numbered
from performative.types import as_numbers


@dataclasses.dataclass(frozen=True)
class Extremes:
    """What Lemma 5.6 says exists. unmet: why it need not."""

    F: float
    M: float
    G: float
    l_max: float
    unmet: tuple[str, ...] = ()


@numbered("zheng2024", "Lemma 5.6", "F, M, G and l_max of a problem on boxes")
@checked
def lemma_5_6(
    models: tuple[Any, Any], data: tuple[Any, Any], *, slope: Callable[[np.ndarray], Any] | None = None,
    curvature: Callable[[np.ndarray], Any] | None = None,
    gradient: Callable[[np.ndarray, np.ndarray], Any] | None = None,
    loss: Callable[[np.ndarray, np.ndarray], Any] | None = None, points: Count = 1024,
) -> Extremes:  # fmt: skip
    """Lemma 5.6: F, M, G and l_max exist on compact sets. Here they are searched for in boxes.

    Args:
        models, data: (lo, hi) of theta and z, a number or one per coordinate
        slope, curvature: |df/dtheta| and |d^2 f/dtheta^2| at theta, [P, d] -> [P]
        gradient, loss: |grad l| and l at theta and z, [P, d] and [P, m] -> [P]; without a function, inf
        points: number of lattice points to try, in addition to all corners

    Exact if the largest value is in a corner (convex functions), else a lower bound. Differs from the paper, which also
    assumes that Z is compact; Gaussian data, its own example, are not: with infinite bounds, G and l_max are inf. l_max
    bounds |l| here: the loss of pricing is negative.
    """
    (low, high), (floor, ceiling) = _box(models), _box(data)
    closed = [bool(np.all(np.isfinite(ends))) for ends in ([low, high], [floor, ceiling])]
    unmet = broken(
        (closed[0], "Theta must be bounded: F, M, G and l_max need not exist"),
        (closed[1], "Z must be bounded: G and l_max need not exist"),
    )
    theta = _points(low, high, points) if closed[0] else None
    both = _points(np.append(low, floor), np.append(high, ceiling), points) if all(closed) else None
    F, M = (math.inf if part is None or theta is None else _largest(part(theta)) for part in (slope, curvature))
    G, l_max = (
        math.inf if part is None or both is None else _largest(part(both[:, : len(low)], both[:, len(low) :]))
        for part in (gradient, loss)
    )
    return Extremes(F, M, G, l_max, unmet)


@numbered("zheng2024", "Lemma C.3", "sensitivity of a mixture of two groups")
@checked
def mixture_sensitivity(group_sensitivity: Extended, distance: Extended, share_slope: Extended) -> Any:
    """Lemma C.3: sensitivity of a mixture of two groups whose shares respond to the model.

        W_1(D(theta), D(theta')) <= (gamma + W_1(D_1(theta), D_2(theta)) F) |theta - theta'|

    Args:
        group_sensitivity: gamma, the larger sensitivity of the groups' own data; 0 if they are fixed
        distance: W_1 between the groups, the largest if it depends on theta
        share_slope: F >= |d nu_1 / d theta|
    """
    given = {"group_sensitivity": group_sensitivity, "distance": distance, "share_slope": share_slope}
    for name, value in given.items():
        if not np.all(np.isfinite(value)) or np.any(np.asarray(value) < 0):
            raise ValueError(f"mixture_sensitivity: {name} must be finite and not negative; got {value}.")
    return group_sensitivity + distance * share_slope


def _box(ends: tuple[Any, Any]) -> tuple[np.ndarray, np.ndarray]:
    pair = [as_numbers(end) for end in ends]
    sound = len(pair) == 2 and all(end is not None and end.dtype.kind == "f" and end.ndim < 2 for end in pair)
    if not sound or len({end.size for end in pair if end.ndim}) > 1:
        raise ValueError(f"models and data must each be a box (lo, hi), of numbers or of one shape; got {ends!r}.")
    low, high = np.broadcast_arrays(*(np.atleast_1d(np.asarray(end, np.float64)) for end in pair))
    if not np.all(low <= high):
        raise ValueError(f"models and data must be boxes (lo, hi) with lo <= hi; got {ends!r}.")
    return low, high


def _points(low: np.ndarray, high: np.ndarray, points: int) -> np.ndarray:
    axes = len(low)
    if axes > 12:
        raise ValueError(f"lemma_5_6 searches boxes of at most 12 coordinates in all; got {axes}.")
    corners = np.stack(np.meshgrid(*([[0.0, 1.0]] * axes), indexing="ij"), -1).reshape(-1, axes)
    # Kronecker's lattice with the generalized golden ratio, the root of x^(axes + 1) = x + 1: even in any dimension.
    golden = 2.0
    for _ in range(64):
        golden = (1.0 + golden) ** (1.0 / (axes + 1))
    inside = np.arange(1, points + 1)[:, None] * golden ** -np.arange(1.0, axes + 1.0) % 1.0
    return low + (high - low) * np.concatenate([corners, inside])


def _largest(values: Any) -> float:
    found = float(np.max(np.abs(values)))
    if math.isnan(found):
        raise ValueError("lemma_5_6: a function is NaN somewhere in its box; use a box on which it is defined.")
    return found

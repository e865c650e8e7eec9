"""How far a point may be off because expectations are taken over a finite rule: draws, or a quadrature."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from performative._base.messages import warn
from performative._engine.risk import NODES, count_nodes
from performative.populations.nodes import BATCHES, Count
from performative.solve.landscape import Landscape, View
from performative.solve.roots import natural_map, natural_slope, safe_step
from performative.solve.solution import Solution
from performative.types import Theta

# An error of more than this share of the point is told with the point, asked or not.
_ROUGH = 1e-3


def point_error(land: Landscape, view_of: Callable[[Landscape], View], x: np.ndarray) -> float:
    """Standard error of x, the root of the natural map that `view_of` leads to.

        x_b - x = -J^{-1} F_b(x)

    F_b is the natural map over the b-th set of draws, J its derivative. NaN above DENSE parameters; see `spread`.
    """
    if not land.dense:
        return np.nan
    view = view_of(land)
    step = safe_step(view.slope(x))
    slope = natural_slope(land, view, step, x)
    if not np.all(np.isfinite(slope)):
        return np.nan

    def move(other: Landscape) -> np.ndarray:
        return np.linalg.lstsq(slope, natural_map(other, view_of(other), step, x), rcond=1e-10)[0]

    return spread(land, move)


def spread(land: Landscape, answer: Callable[[Landscape], np.ndarray]) -> float:
    """Standard deviation of an answer over sets of draws, or turned and thinned quadratures; its largest coordinate.

    0 for a rule that is exact (the rows of a table), NaN where nothing is known: where an answer is no number, and for
    `nodes` of a user's that depend on `count` but have no batches.
    """
    count = Count(land.samples, jnp.zeros((), jnp.int32))
    nodes = count_nodes(land.problem, land.one, count)
    if not count.batched:  # exact, as far as can be seen, where more samples make no more nodes
        return 0.0 if count_nodes(land.problem, land.one, 2 * land.samples) == nodes else np.nan
    answers = np.stack([answer(dataclasses.replace(land, batch=jnp.asarray(b))) for b in range(BATCHES)])
    return float(np.max(np.std(answers, axis=0, ddof=1), initial=0.0))


def tell_error(what: str, error: float, point: Theta) -> None:
    """Warn of a point that is given without its error, where that is not small."""
    size = max((float(np.max(np.abs(leaf), initial=0.0)) for leaf in jax.tree.leaves(point)), default=0.0)
    if error > _ROUGH * (1.0 + size):
        warn(
            "sampled-point",
            f"{what} has a standard error of about {error:.2g} from the draws that expectations are taken over; give "
            "samples= for more of them, or the population `nodes` that are exact.",
        )


def check_samples(samples: int | None) -> int:
    """Draws a client, NODES unless told."""
    if samples is None:
        return NODES
    if samples < 2:
        raise ValueError(f"samples must be a whole number of draws a client, 2 or more; got {samples!r}.")
    return samples


def choose(name: str, play: str, found: Sequence[Solution], report: bool) -> Any:
    """The first point that attracts `play`, or may; else the first, with a warning. Whole, or its model alone."""
    attracting = [point for point in found if point.attracting is not False]
    best = (attracting or list(found))[0]
    if not attracting:
        warn(
            "repelling-point",
            f"{name}: the point found repels {play} (contraction factor {best.contraction:.4g}); "
            f"small gradient steps {'do settle there' if best.settles else 'run away from it, too'}.",
        )
    if not report:
        tell_error(f"{name}: the point", best.error, best.theta)
        return best.theta
    return dataclasses.replace(best, others=tuple(point for point in found if point is not best))

"""The error of a point due to finite expectation rules: draws, or a quadrature."""

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

# An error above this fraction of the point always triggers a warning.
_ROUGH = 1e-3


def point_error(land: Landscape, view_of: Callable[[Landscape], View], x: np.ndarray) -> float:
    """Standard error of x, the root of the natural map of `view_of`.

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
    """Standard deviation of an answer over sets of draws, or rotated and thinned quadratures; its largest coordinate.

    0 for an exact rule (the rows of a table), NaN if unknown: if an answer is NaN, and for a user-defined `quadrature`
    that depends on `count` but has no batches.
    """
    count = Count(land.samples, jnp.zeros((), jnp.int32))
    nodes = count_nodes(land.problem, land.one, count)
    if not count.batched:  # presumably exact if more samples do not add nodes
        return 0.0 if count_nodes(land.problem, land.one, 2 * land.samples) == nodes else np.nan
    answers = np.stack([answer(dataclasses.replace(land, batch=jnp.asarray(b))) for b in range(BATCHES)])
    return float(np.max(np.std(answers, axis=0, ddof=1), initial=0.0))


def tell_error(what: str, error: float, point: Theta) -> None:
    """Warn about a point returned without its error, if the error is not small."""
    size = max((float(np.max(np.abs(leaf), initial=0.0)) for leaf in jax.tree.leaves(point)), default=0.0)
    if error > _ROUGH * (1.0 + size):
        warn(
            "sampled-point",
            f"{what} has a standard error of about {error:.2g} from the draws used for expectations; pass "
            "samples= for more of them, or define an exact `quadrature` for the population.",
        )


def check_samples(samples: int | None) -> int:
    """Draws per client, NODES by default."""
    if samples is None:
        return NODES
    if samples < 2:
        raise ValueError(f"samples must be a whole number of draws per client, at least 2; got {samples!r}.")
    return samples


def choose(name: str, play: str, found: Sequence[Solution], report: bool) -> Any:
    """The first point that attracts `play`, or may; else the first, with a warning. The `Solution` or its model."""
    attracting = [point for point in found if point.attracting is not False]
    best = (attracting or list(found))[0]
    if not attracting:
        warn(
            "repelling-point",
            f"{name}: the point found repels {play} (contraction factor {best.contraction:.4g}); "
            f"small gradient steps {'do settle there' if best.settles else 'diverge from it, too'}.",
        )
    if not report:
        tell_error(f"{name}: the point", best.error, best.theta)
        return best.theta
    return dataclasses.replace(best, others=tuple(point for point in found if point is not best))

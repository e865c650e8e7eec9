"""The privacy loss distribution of repeated Gaussian releases, by dp-accounting, on a grid that is chosen and checked.

The library computes one release's profile delta(epsilon), rounds it up to a grid of losses (connect the dots) and
composes by FFT. This module chooses the grid, truncates the tails and limits memory.
"""

import functools
import math
from typing import NamedTuple

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

_FINE = 1e4  # grid <= epsilon / 1e4; the default grid of 1e-4 inflates a small epsilon
# Allowed relative difference between a grid and one three times as coarse. The error falls at least as fast as the
# grid, so a grid three times finer differs by less than a third of this.
_AGREE = 0.01
_POINTS = 6e6  # maximum number of points of a composed distribution: about 0.7 GB while it is built
_SLACK = 1e-5  # fraction of delta that truncated tails may take; counted as an infinite loss


class Part(NamedTuple):
    """A component of a release: a Gaussian of this deviation, in clips, with the record in it with probability `rate`.

    Args:
        above, below: which of the two neighbors contains it, for losses >= 0 and for losses < 0
    """

    share: float
    deviation: float
    rate: float
    above: AdjacencyType
    below: AdjacencyType


Direction = tuple[Part, ...]  # shares add to 1
Directions = tuple[Direction, ...]  # both orders of the two neighbors; the worst counts


def composed_epsilon(
    directions: Directions, steps: int, delta: float, only: float | None = None
) -> tuple[float, float, str] | None:
    """(epsilon, grid, note) of `steps` releases, on finer and finer grids until it converges; `only` fixes one grid.

    Every grid rounds up, so a coarse one is safe, merely pessimistic. None if epsilon is infinite.
    """
    # In integer powers of ten, so one release's distribution serves many numbers of steps.
    tail = 10.0 ** math.floor(math.log10(delta * _SLACK / steps))
    # First attempt: short enough to be composed for any number of steps.
    longest = max(high - low for low, high in (_span(direction, tail) for direction in directions))
    grid = round_down(longest / min(200.0, max(50.0, 1e9 / steps)))
    value, length = _compose(directions, steps, delta, tail, grid)
    previous = math.inf
    while math.isfinite(value):
        wanted = only if only else value / _FINE
        if value == 0.0 or (grid <= wanted and (only or previous <= value * (1.0 + _AGREE))):
            return value, grid, ""
        # A far too coarse grid overestimates epsilon; the next attempt then uses about three times the final grid.
        near = only or grid <= 6.0 * wanted
        finer = round_down(wanted if only else min(grid / 3.0, 0.98 * wanted if near else 3.0 * wanted))
        if length / finer > _POINTS:
            return value, grid, f"grid {grid:.1g} is the finest that fits in memory; a finer one could lower epsilon"
        previous, grid = value, finer
        value, length = _compose(directions, steps, delta, tail, grid)
    return None


def round_down(grid: float) -> float:
    """Round down to one of ten grids per decade, so similar queries share distributions."""
    return 10.0 ** (math.floor(10.0 * math.log10(grid) + 1e-9) / 10.0)


def _compose(directions: Directions, steps: int, delta: float, tail: float, grid: float) -> tuple[float, float]:
    """Epsilon of `steps` releases on one grid, and the range of losses that the composed distribution covers."""
    value = length = 0.0
    for one in _one_release(directions, tail, grid):
        total = one.self_compose(steps, delta * _SLACK)
        # The library's search for epsilon is slow, its delta is not: search only if this direction is worse.
        if value == 0.0 or total.get_delta_for_epsilon(value) > delta:
            value = max(value, float(total.get_epsilon_for_delta(delta)))
        length = max(length, total.size * grid)
    return value, length


def _law(part: Part, adjacency: AdjacencyType, tail: float) -> GaussianPrivacyLoss:
    return GaussianPrivacyLoss(
        part.deviation, sampling_prob=part.rate, adjacency_type=adjacency, log_mass_truncation_bound=math.log(tail)
    )


def _span(direction: Direction, tail: float) -> tuple[float, float]:
    """The losses between which all but a tail of one release lies."""
    low = high = 0.0
    for part in direction:
        below, above = _law(part, part.below, tail), _law(part, part.above, tail)
        # Without the record the noise is centered; the library truncates one clip further out than necessary.
        shift = 1.0 if part.below == AdjacencyType.ADD else 0.0
        low = min(low, float(below.privacy_loss(below.privacy_loss_tail().upper_x_truncation - shift)))
        high = max(high, float(above.privacy_loss(above.privacy_loss_tail().lower_x_truncation)))
    return low, high


@functools.lru_cache(maxsize=32)
def _one_release(directions: Directions, tail: float, grid: float) -> tuple[pld_pmf.PLDPmf, ...]:
    """One release's loss distribution for each direction of neighbors, rounded up to multiples of `grid`.

    The library's connect-the-dots is an upper bound on any set of losses. Ours contains every multiple near zero and
    then grows in steps of 1/300 of the distance from it: a thousand times fewer calls than all multiples, and the same
    epsilon.
    """
    pmfs = []
    for direction in directions:
        low, high = _span(direction, tail)
        losses = np.unique(np.concatenate([-_multiples(-low / grid), [0], _multiples(high / grid)]))
        delta = np.zeros(len(losses))
        at, positive = losses * grid, losses >= 0
        for part in direction:
            above, below = _law(part, part.above, tail), _law(part, part.below, tail)
            delta[positive] += part.share * above.get_delta_for_epsilon(at[positive])
            delta[~positive] += part.share * below.get_delta_for_epsilon(at[~positive])
        # Losses beyond have at most the tail's probability, and count as infinite.
        last = int(np.searchsorted(-delta, -tail)) + 1
        losses, delta = losses[:last], np.minimum(delta[:last], 1.0)
        with np.errstate(over="ignore"):  # a gap of more than 700 overflows to the correct limit
            pmfs.append(pld_pmf.create_pmf_pessimistic_connect_dots(grid, losses, delta).to_dense_pmf())
    return tuple(pmfs)


def _multiples(end: float) -> np.ndarray:
    """Integers from 1 to `end`, rounded up: all up to 300, then growing by a factor of 1 + 1/300."""
    last = max(1, math.ceil(end))
    count = math.ceil(max(0.0, math.log(last / 300)) * 300) + 1
    growing = np.ceil(300 * np.exp(np.arange(count) / 300)).astype(np.int64)
    return np.unique(np.concatenate([np.arange(1, min(last, 300) + 1), np.minimum(growing, last), [last]]))

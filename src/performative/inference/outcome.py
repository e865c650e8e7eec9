"""What a run reveals: estimates with intervals, one per repeat."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from performative.types import Theta


@dataclasses.dataclass(frozen=True, eq=False)
class Interval:
    """One number per repeat with its interval, each [repeats]."""

    estimate: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def covers(self, value: float) -> np.ndarray:
        """Whether the value lies inside, [repeats]."""
        return (self.low <= value) & (value <= self.high)


@dataclasses.dataclass(frozen=True, eq=False)
class Spread:
    """An estimate per repeat, flat, and its variation from run to run.

    Attributes:
        center: [repeats, d]; covariance: of the center, [repeats, d, d]
        degrees: of freedom of the covariance, infinite if it is not estimated from the spread of the run
        kept: how many records, or deployments, were used
        method: in words; doubts: why it may be off, in words
    """

    center: np.ndarray
    covariance: np.ndarray
    degrees: float
    kept: int
    method: str
    doubts: tuple[str, ...] = ()

    def reach(self, level: float, directions: int = 1) -> float:
        """How many standard errors an interval extends; in several directions at once, Hotelling's."""
        from scipy import stats

        if not np.isfinite(self.degrees):
            return float(np.sqrt(stats.chi2.ppf(level, directions)))
        left = max(self.degrees - directions + 1, 1.0)
        return float(np.sqrt(directions * self.degrees / left * stats.f.ppf(level, directions, left)))


def share_of(repeats: np.ndarray) -> str:
    """The share of repeats for which something is true, in words."""
    return "every repeat" if np.all(repeats) else f"{100 * np.mean(repeats):.2g}% of repeats"


@dataclasses.dataclass(frozen=True, eq=False)
class Confidence:
    """Intervals for the stable point and what follows from it. Every repeat is a run with its own interval.

    Attributes:
        level: the share of runs whose interval covers the truth; for each number separately, not for all at once
        estimate, low, high, error: of theta_PS, [repeats, ...] per leaf; `error` is the standard error. NaN in repeats
            that diverged
        risk: of PR(theta_PS), the performative risk at the stable point; without a problem the mean risk of the
            models deployed after the burn-in, None if that was not recorded
        gap: of PR(theta_PS) - PR(theta_PO) >= 0, what the stable point costs; None without a problem
        method: "plug-in", "batch means" or "autoregression"
        kept: number of records, or deployments, that the estimate averages
        notes: why the intervals may be off, in words; empty if nothing is known against them
    """

    level: float
    estimate: Any
    low: Any
    high: Any
    error: Any
    method: str
    kept: int
    risk: Interval | None = None
    gap: Interval | None = None
    notes: tuple[str, ...] = ()

    @property
    def repeats(self) -> int:
        return len(jax.tree.leaves(self.estimate)[0])

    def covers(self, point: Theta) -> Any:
        """Whether each number of this model lies in its interval, [repeats, ...] per leaf."""
        return jax.tree.map(lambda low, value, high: (low <= value) & (value <= high), self.low, point, self.high)

    def __str__(self) -> str:
        lines = [f"{100 * self.level:g}% intervals from one run each, by {self.method} over {self.kept} records:"]
        for path, leaf in jax.tree_util.tree_leaves_with_path(self.estimate):
            low, high = (np.asarray(_at(tree, path)) for tree in (self.low, self.high))
            name = "stable point" + jax.tree_util.keystr(path)
            lines += _rows(name, np.asarray(leaf), low, high)
        for name, found in (("risk there", self.risk), ("gap to optimal", self.gap)):
            if found is not None:
                lines += _rows(name, found.estimate, found.low, found.high)
        return "\n".join([*lines, *(f"  In doubt: {note}" for note in self.notes)])


# How many numbers of the first repeat are printed at most.
_SHOWN = 6


def _rows(name: str, estimate: np.ndarray, low: np.ndarray, high: np.ndarray) -> list[str]:
    """One line per number, for the first repeat."""
    flat = [np.reshape(part[0], -1) for part in (estimate, low, high)]
    several = len(flat[0]) > 1
    rows = [
        f"  {name}{f'[{i}]' if several else ''}: {e:.4g} [{a:.4g}, {b:.4g}]"
        for i, (e, a, b) in enumerate(zip(*flat, strict=True))
    ]
    more = [f"  ... and {len(rows) - _SHOWN} more"] if len(rows) > _SHOWN else []
    return rows[:_SHOWN] + more


def _at(tree: Any, path: Any) -> Any:
    return dict(jax.tree_util.tree_leaves_with_path(tree))[path]


def intervals(spread: Spread, level: float, shape: Callable[[np.ndarray], Any], **more: Any) -> Confidence:
    """Intervals for each number separately; `shape` turns flat rows [repeats, d] into a model."""
    error = np.sqrt(np.maximum(np.einsum("rjj->rj", spread.covariance), 0.0))
    half = spread.reach(level) * error
    return Confidence(
        level, shape(spread.center), shape(spread.center - half), shape(spread.center + half), shape(error),
        spread.method, spread.kept, **more,
    )  # fmt: skip

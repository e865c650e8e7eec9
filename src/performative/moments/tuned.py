"""What `pf.tune` returns."""

import dataclasses
from typing import Any

import numpy as np

from performative.algorithm import Algorithm

__all__ = ["Tuned"]


@dataclasses.dataclass(frozen=True, eq=False)
class Tuned:
    """The best numbers found.

    Attributes:
        algorithm: with them; values: {name: value} of what was free, {} if nothing better was found
        before, after: the exact cost of the given algorithm and of the best one; infinite if it does not settle
        path: the cost after each iteration of the search that ended best
        gradient: the largest slope of log(cost) there, by the coordinates of the search
        cost: what was minimized, in words
        tried: (setting, best cost) for each combination of values to try
    """

    algorithm: Algorithm
    values: dict[str, Any]
    before: float
    after: float
    path: tuple[float, ...]
    gradient: float
    cost: str
    tried: tuple[tuple[str, float], ...] = ()

    @property
    def ratio(self) -> float:
        """before / after, at least 1."""
        return 1.0 if self.before == self.after else float(np.divide(self.before, self.after))

    def __str__(self) -> str:
        lines = [
            f"{self.cost}: {self.before:.6g} as given, {self.after:.6g} at best (lower by a factor of {self.ratio:.4g})"
        ]
        if not self.values:
            return f"{lines[0]}\n  nothing better was found"
        lines += [f"  {name} = {_told(value)}" for name, value in self.values.items()]
        lines += [f"  {name}: {cost:.6g}" for name, cost in self.tried]
        if self.path:
            lines.append(f"  {len(self.path) - 1} iterations; the largest remaining slope is {self.gradient:.1e}")
        return "\n".join(lines)


def _told(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return f"{value:.6g}" if isinstance(value, float) else str(value)
    if len(value) <= 8:
        return "[" + ", ".join(f"{one:.4g}" for one in value.tolist()) + "]"
    return f"{len(value)} numbers from {value.min():.4g} to {value.max():.4g}"

"""What a theorem says about one problem, and how its assumptions are stated: one form for all papers."""

import dataclasses
import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from performative._base.arguments import check_fields
from performative._deprecated import OLD_FIELDS


@dataclasses.dataclass(frozen=True, eq=False)
class Bound:
    """A bound by its causes, and the preconditions that are violated.

        total = sum of the terms

    A term or a detail is an attribute too: `bound.noise` is `bound.terms["noise"]`.

    Args:
        terms: cause -> a number, or an array over t = 0, ..., T, the start first.
        unmet: preconditions that the given numbers violate, in words. If there are any, nothing is proved.
        details: other numbers, such as the `step` and the `clip` at which it is smallest.
    """

    terms: Mapping[str, Any]
    unmet: tuple[str, ...] = ()
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def by(cls, causes: str, *values: Any, unmet: tuple[str, ...] = ()) -> "Bound":
        """Build from the names of the causes, separated by spaces, and their values."""
        return cls(dict(zip(causes.split(), values, strict=True)), unmet)

    @classmethod
    def nothing(cls, causes: str, unmet: tuple[str, ...], steps: int | None = None) -> "Bound":
        """No bound: every cause is infinite, at each t = 0, ..., `steps` if that is given."""
        infinite = math.inf if steps is None else np.full(steps + 1, math.inf)
        return cls(dict.fromkeys(causes.split(), infinite), unmet)

    @property
    def total(self) -> Any:
        """The bound."""
        return sum(self.terms.values())

    @property
    def holds(self) -> bool:
        """Whether every precondition is met."""
        return not self.unmet

    def __getattr__(self, name: str) -> Any:
        known = {**vars(self).get("details", {}), **vars(self).get("terms", {})}
        if name in known:
            return known[name]
        if (new := OLD_FIELDS.get(name, "")) == "total" or new in known:
            warnings.warn(f"Bound.{name} is now Bound.{new}.", DeprecationWarning, stacklevel=2)
            return getattr(self, new)
        raise AttributeError(f"this Bound has no {name!r}; it has {', '.join(known)}.")

    def __repr__(self) -> str:
        """The total and its terms (last value of arrays), its details, and what is unmet."""
        text = f"{_last(self.total)} = " + " + ".join(f"{_last(value)} {cause}" for cause, value in self.terms.items())
        text += "".join(f", {name} {_last(value)}" for name, value in self.details.items() if value is not None)
        return f"Bound({text}{'; unmet: ' * bool(self.unmet)}{'; '.join(self.unmet)})"


@dataclasses.dataclass(frozen=True)
class AbstractAssumptions:
    """The constants of a problem, as a theorem takes them. Field types define the valid ranges."""

    def __post_init__(self) -> None:
        check_fields(self)


def broken(*rules: tuple[Any, str]) -> tuple[str, ...]:
    """The descriptions of violated rules, from pairs (met, description)."""
    return tuple(text for met, text in rules if not met)


def unroll(keep: np.ndarray, add: np.ndarray, start: float = 0.0) -> np.ndarray:
    """All b_{t+1} = keep_t b_t + add_t from b_0 = start, the start first."""
    values = [start]
    for k, a in zip(keep.tolist(), add.tolist(), strict=True):
        values.append(k * values[-1] + a)
    return np.asarray(values, np.float64)


def check_steps(eta: Any) -> np.ndarray:
    """The steps as a vector."""
    eta = np.atleast_1d(np.asarray(eta, np.float64))
    if eta.ndim != 1 or not len(eta) or not np.all(np.isfinite(eta) & (eta > 0)):
        raise ValueError("eta must contain a positive step for each t = 0, ..., T - 1, such as 10 / (101 + arange(T)).")
    return eta


def _last(value: Any) -> str:
    return f"{float(np.ravel(value)[-1]):.6g}"

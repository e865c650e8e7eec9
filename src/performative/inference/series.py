"""The models of a run as rows of numbers."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

# The burn-in: the first part of a run still depends on the start.
BURN_IN = 0.25
# Maximum number of numbers in the covariances of all repeats (1 GB); more are refused.
_LARGEST = 1 << 27


@runtime_checkable
class Recorded(Protocol):
    """What intervals need from a `pf.History`."""

    @property
    def theta(self) -> Any: ...

    @property
    def rounds(self) -> np.ndarray: ...

    @property
    def risk_rounds(self) -> np.ndarray: ...

    @property
    def risks(self) -> dict[str, np.ndarray]: ...

    @property
    def weights(self) -> np.ndarray: ...

    @property
    def participation(self) -> np.ndarray | None: ...

    @property
    def stopped_at(self) -> np.ndarray: ...

    @property
    def meta(self) -> dict[str, Any]: ...


def rows_of(theta: Any, owner: str = "confidence") -> tuple[np.ndarray, Callable[[np.ndarray], Any]]:
    """Models [repeats, records, ...] as [repeats, records, d] in float64, and the inverse map for [repeats, d]."""
    leaves, tree = jax.tree.flatten(theta)
    shapes = [np.shape(leaf)[2:] for leaf in leaves]
    sizes = [int(np.prod(shape)) for shape in shapes]
    d, repeats = sum(sizes), len(leaves[0])
    if repeats * d**2 > _LARGEST:
        raise ValueError(
            f"{owner}: covariances of {d} parameters in {repeats} repeats are too large; keep only some leaves of "
            "history.theta, with dataclasses.replace."
        )
    flat = [np.asarray(leaf, np.float64).reshape(*np.shape(leaf)[:2], -1) for leaf in leaves]

    def back(rows: np.ndarray) -> Any:
        parts = np.split(rows, np.cumsum(sizes)[:-1], axis=1)
        return jax.tree.unflatten(tree, [p.reshape(len(rows), *s) for p, s in zip(parts, shapes, strict=True)])

    return np.concatenate(flat, axis=2), back


def kept_records(rounds: np.ndarray) -> np.ndarray:
    """Which records are used, [records]: those after the burn-in."""
    return np.asarray(rounds) > BURN_IN * rounds[-1]

"""The models of a run as rows of numbers."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

# The first part of a run is left out: it still knows where it started.
BURN_IN = 0.25
# Numbers in the covariances of all repeats, above which they are refused (1 GB).
_LARGEST = 1 << 27


@runtime_checkable
class Recorded(Protocol):
    """What intervals take of a `pf.History`."""

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
    """Models [repeats, records, ...] as [repeats, records, d] in float64, and the way back for [repeats, d]."""
    leaves, tree = jax.tree.flatten(theta)
    shapes = [np.shape(leaf)[2:] for leaf in leaves]
    sizes = [int(np.prod(shape)) for shape in shapes]
    d, repeats = sum(sizes), len(leaves[0])
    if repeats * d**2 > _LARGEST:
        raise ValueError(
            f"{owner}: covariances of {d} parameters in {repeats} repeats are too large; hand over some of the leaves "
            "of history.theta, by dataclasses.replace."
        )
    flat = [np.asarray(leaf, np.float64).reshape(*np.shape(leaf)[:2], -1) for leaf in leaves]

    def back(rows: np.ndarray) -> Any:
        parts = np.split(rows, np.cumsum(sizes)[:-1], axis=1)
        return jax.tree.unflatten(tree, [p.reshape(len(rows), *s) for p, s in zip(parts, shapes, strict=True)])

    return np.concatenate(flat, axis=2), back


def kept_records(rounds: np.ndarray) -> np.ndarray:
    """Which records count, [records]: those after the first part of the run."""
    return np.asarray(rounds) > BURN_IN * rounds[-1]

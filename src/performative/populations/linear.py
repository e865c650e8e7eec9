"""Shared by populations whose data depend linearly on the model: reactions, shapes, linear solves."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from performative.types import ArrayLike, is_concrete

# Above this condition number a linear system counts as singular.
_SINGULAR = 1e12


def react(sensitivity: Array, theta: Array) -> Array:
    """sensitivity * theta: a number or a vector acts by coordinate, a matrix as a linear map."""
    if sensitivity.ndim == 2:
        return jnp.sum(sensitivity * theta, axis=-1)
    return sensitivity * theta


def widest(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of theta: the longest of these shapes."""
    return max(shapes, key=len)


def check_shapes(
    owner: str, shape: tuple[int, ...], fields: dict[str, ArrayLike], matrices: tuple[str, ...] = ()
) -> None:
    """Fields are numbers, [N] or [N, *shape]; those in `matrices` may also be [N, d, d]."""
    said = ", ".join(list(fields)[:-1]) + f" and {list(fields)[-1]}"
    for name, value in fields.items():
        allowed = [shape, shape + shape] if name in matrices and shape else [shape]
        if np.ndim(value) > 1 and np.shape(value)[1:] not in allowed:
            raise ValueError(
                f"{owner}: {name} has shape {np.shape(value)}, but theta has shape {shape} here, the longest among "
                f"{said}; pass one number per client, or {[('N', *a) for a in allowed]}."
            )


class Translation(NamedTuple):
    """Samples that move together.

    Args:
        share: fraction of client i's data, [N]
        follows: their shift per unit of theta: a number [N], by coordinate [N, d], or a linear map [N, d, k]
    """

    share: np.ndarray
    follows: np.ndarray


def moved(follows: ArrayLike, clients: int) -> list[Translation]:
    """All samples as one group; `follows` may be one number for all clients."""
    follows = np.asarray(follows, np.float64)
    return [Translation(np.ones(clients), np.broadcast_to(follows, clients) if follows.ndim == 0 else follows)]


def mixed(shares: list[np.ndarray], groups: list[list[Translation] | None]) -> list[Translation] | None:
    """Groups of groups, with shares [N] each."""
    found: list[Translation] = []
    for share, inside in zip(shares, groups, strict=True):
        if inside is None:
            return None
        # A part that all clients share has one row: broadcast it.
        found += [Translation(share * own, np.broadcast_to(m, (len(share), *m.shape[1:]))) for own, m in inside]
    return found


def exact(value: ArrayLike) -> Any:
    """On the host in float64; unchanged while JAX traces, so closed forms work inside a compiled loop."""
    return np.asarray(value, np.float64) if is_concrete(value) else value


def by_client(value: ArrayLike, clients: int, shape: tuple[int, ...]) -> Any:
    """A number, [N] or [N, *shape], broadcast to [N, *shape]."""
    rows = exact(value)
    if rows.ndim == 1:
        rows = rows.reshape(-1, *(1,) * len(shape))
    return (np if is_concrete(rows) else jnp).broadcast_to(rows, (clients, *shape))


def divide(level: ArrayLike, slope: ArrayLike) -> Any:
    """slope^-1 level, by coordinate or by a matrix; None if the slope is singular: there is no such point."""
    if not is_concrete((level, slope)):
        right, left = jnp.asarray(level), jnp.asarray(slope)
        return jnp.linalg.solve(left, right) if left.ndim == 2 else right / left
    level, slope = np.asarray(level), np.asarray(slope)  # NumPy's sums of numbers are not arrays
    if slope.ndim == 2:
        return None if np.linalg.cond(slope) > _SINGULAR else np.linalg.solve(slope, level)
    return None if np.any(np.abs(slope) < 1 / _SINGULAR) else np.asarray(level / slope)


def is_positive(slope: ArrayLike) -> bool:
    """Whether theta . slope theta > 0 for all theta != 0, so the quadratic has a minimum."""
    slope = np.asarray(slope)
    values = np.linalg.eigvalsh((slope + slope.T) / 2) if slope.ndim == 2 else slope
    return bool(np.min(values) > max(np.max(np.abs(values)), 1.0) / _SINGULAR)

"""Numbers by group, and their checks."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from performative._base.checks import check_finite
from performative.types import ArrayLike, Theta, as_numbers, is_concrete


class Columns(eqx.Module):
    """One entry per group: a number that all clients share, or one row per client.

    An array [K] in a per-client field would be read as one number for each of K clients; separate entries are not.
    """

    entries: tuple[Any, ...]

    def stack(self) -> Array:
        """One client's numbers, [K]."""
        return jnp.stack(self.entries)

    def inner(self, theta: Array) -> Array:
        """entry . theta, for each group."""
        return jnp.stack([jnp.sum(entry * theta) for entry in self.entries])


def as_columns(value: Columns | ArrayLike) -> Any:
    """[K] (shared by all clients), [N, K] or [N, K, d] by group; everything else is left to the checks."""
    if isinstance(value, Columns):
        return value
    array = as_numbers(value)
    if array is None or array.ndim == 0 or array.dtype.kind != "f":
        return array
    axis = min(array.ndim - 1, 1)
    return Columns(tuple(array[:, k] if axis else array[k] for k in range(array.shape[axis])))


def check_columns(owner: str, **fields: Columns | ArrayLike) -> None:
    """Raise unless the fields are [K], [N, K] or [N, K, d] of finite numbers."""
    for name, value in fields.items():
        if not isinstance(value, Columns):
            check_finite(owner, **{name: value})
            raise ValueError(f"{owner}: {name} needs one entry for each group, [K] or [N, K]; got {value!r}.")
        if not value.entries or np.ndim(value.entries[0]) > 2:
            raise ValueError(f"{owner}: {name} must be [K], [N, K] or [N, K, d], and not empty.")
        if is_concrete(value):
            rows = [np.asarray(entry) for entry in value.entries]
            check_finite(owner, **{name: np.stack(rows, axis=min(rows[0].ndim, 1))})


def check_sum(owner: str, name: str, columns: Columns, wanted: float) -> None:
    """Raise unless the numbers sum to `wanted` over the groups, for every client."""
    if is_concrete(columns):
        total = np.asarray(sum(np.asarray(entry) for entry in columns.entries))
        worst = total.flat[np.argmax(np.abs(total - wanted))]
        if abs(worst - wanted) > 1e-6:
            raise ValueError(f"{owner}: {name} must sum to {wanted:g} over the groups; it sums to {worst:.6g}.")


def check_theta(owner: str, name: str, columns: Columns, theta: Theta) -> None:
    """Raise if theta is not shaped like a client's entries."""
    got, shape = jnp.shape(columns.entries[0]), jnp.shape(theta)
    if got != shape:
        wanted = "[N, K, d]" if shape else "[K] or [N, K]"
        raise ValueError(f"{owner}: {name} has shape {got} per group, theta {shape}; give {name} as {wanted}.")


def check_numbers(owner: str, **fields: ArrayLike) -> None:
    """Raise unless each field is a finite number or one per client."""
    check_finite(owner, **fields)
    for name, value in fields.items():
        if np.ndim(value) > 1:
            raise ValueError(f"{owner}: {name} must be a number or one per client; got shape {np.shape(value)}.")

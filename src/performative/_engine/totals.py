"""Sums without rounding drift, stored as two floats each.

A float32 counts only up to 2^24, and summing 0.1 a million times in it is 1% too large. Here a sum is the pair (high,
low), where low is the rounding error of high: integers are exact up to 2^47, others to 14 digits.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, PyTree


class Total(eqx.Module):
    """high + low."""

    high: Array
    low: Array

    def __add__(self, other: "Total") -> "Total":
        high, rest = _two_sum(self.high, other.high)
        return Total(*_two_sum(high, rest + self.low + other.low))

    def value(self) -> np.ndarray:
        """As float64, on the host."""
        return np.asarray(np.asarray(self.high, np.float64) + np.asarray(self.low, np.float64))


def is_total(node: PyTree) -> bool:
    return isinstance(node, Total)


def zero_total(shape: tuple[int, ...], dtype: DTypeLike) -> Total:
    return Total(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))


def as_total(value: Array, dtype: DTypeLike) -> Total:
    """A number as a total; exact for integers."""
    if jnp.issubdtype(value.dtype, jnp.integer):
        return Total(*_two_sum((value >> 12).astype(dtype) * 4096, (value & 4095).astype(dtype)))
    high = value.astype(dtype)
    return Total(high, jnp.zeros_like(high))


def sum_of(values: Array, dtype: DTypeLike) -> Total:
    """The sum of one number per client. Integers are added in two parts, so sums up to 2^39 fit."""
    if jnp.issubdtype(values.dtype, jnp.integer):
        coarse, fine = jnp.sum(values >> 8, dtype=jnp.int32), jnp.sum(values & 255, dtype=jnp.int32)
        large = as_total(coarse, dtype)
        return Total(large.high * 256, large.low * 256) + as_total(fine, dtype)
    return as_total(jnp.sum(values.astype(dtype)), dtype)


def add_at(total: Total, rows: Array, values: Array) -> Total:
    """Add `values` to these rows, which must be distinct; rows past the end are dropped."""
    here = jax.tree.map(lambda leaf: jnp.take(leaf, rows, mode="clip"), total)
    new = here + as_total(values, total.high.dtype)
    return jax.tree.map(lambda leaf, row: leaf.at[rows].set(row, mode="drop"), total, new)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b rounded, and the rounding error (Knuth). Exact, whichever is larger."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)

"""Clients' tables [N, m, ...]: how many rows of each are real, and how the others are padded."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from performative._base.checks import check_finite
from performative._base.messages import refused
from performative.partition import NO_LABEL
from performative.types import AbstractTable, ArrayLike, Counts, as_array, as_numbers, is_concrete


def as_counts(value: ArrayLike | None) -> Any:
    """Whole numbers as int32, on the host unless they are on a device already."""
    if value is None or isinstance(value, jax.Array):
        return value
    array = as_array(value)
    whole = array.dtype.kind in "iu" or (array.dtype.kind == "f" and np.all(array == np.floor(array)))
    if not whole or not np.all(np.abs(array) < 2**31):
        raise ValueError(f"count must contain whole numbers of rows; got {value!r}.")
    return array.astype(np.int32)


def as_labels(value: ArrayLike) -> Any:
    """Labels: integers stay integers, other values are unchanged."""
    if isinstance(value, AbstractTable):
        return value
    value = value if isinstance(value, jax.Array) else as_array(value)
    if value.dtype.kind not in "bui":
        return as_numbers(value)
    if value.dtype.itemsize >= 4 and value.dtype != np.int32 and is_concrete(value) and value.size:
        low, high = int(value.min()), int(value.max())
        if low < -(2**31) or high >= 2**31:
            raise ValueError(
                f"y contains whole numbers from {low} to {high}, which do not fit into the 32 bits of a label; give "
                "targets as floats."
            )
    return value.astype(np.int32)


def table_nodes(capacity: int, rows: Array | int) -> tuple[Array, Array]:
    """Every row of a table once: expectations over it are exact.

    Padding has zero weight and is never read: row 0, which every table has, replaces it.
    """
    every = jnp.arange(capacity, dtype=jnp.int32)
    real = every < rows
    weight = real.astype(jnp.result_type(float))
    return jnp.where(real, every, 0), weight / jnp.sum(weight)


def labels_in(population: eqx.Module) -> np.ndarray | None:
    """The labels y that occur in real rows, sorted; None if there are none, or they cannot be read."""
    labels, count = getattr(population, "y", None), getattr(population, "count", None)
    if labels is None or isinstance(labels, AbstractTable) or not is_concrete((labels, count)):
        return None
    values = np.asarray(labels)
    if count is None or values.ndim < 2:
        return np.unique(values)
    return np.unique(values[np.arange(values.shape[1]) < np.broadcast_to(count, len(values))[:, None]])


def check_tables(owner: str, count: Counts | None, **tables: Any) -> None:
    """Raise for an invalid count, padding without a count, and non-finite values in real rows.

    Args:
        tables: by the population's names for them, [N, m, ...]; None if one is missing
    """
    there = {name: table for name, table in tables.items() if table is not None}
    rows = next(iter(there.values())).shape[1]
    real = None
    if count is not None and is_concrete(count):
        held = np.asarray(count)
        first = next(iter(there))
        if np.shape(held) not in ((), there[first].shape[:1]):
            raise ValueError(
                f"{owner}: count must be one number of rows per client, [{there[first].shape[0]}]; got shape "
                f"{np.shape(held)}."
            )
        if np.any((held < 1) | (held > rows)):
            raise ValueError(f"{owner}: count must lie in 1..{rows}, the rows of {first}; got {held.tolist()}.")
        real = np.arange(rows) < np.reshape(held, (-1, 1))
    for name, table in there.items():
        padding = padding_of(table)
        if padding is not None and (count is None or real is not None):
            _check_padding(owner, name, padding, real)
        if not is_concrete(table):
            continue
        values = np.asarray(table)
        if real is not None and values.dtype.kind == "f" and not np.all(np.isfinite(values)):
            values = np.where(real.reshape(*real.shape, *(1,) * (values.ndim - 2)), values, 0.0)
        check_finite(owner, **{name: values})


def padding_of(table: Array | np.ndarray | AbstractTable) -> Bool[np.ndarray, "N m"] | None:
    """Rows at the end of clients' tables that contain only NaN, or no label; None if there are none.

    This is what `pf.partition.tables` pads with; a table on disk knows how many rows were written to it.
    """
    held = getattr(table, "count", None)
    if held is not None and is_concrete(held):
        past = np.arange(table.shape[1]) >= np.reshape(held, (-1, 1))
        return past if past.any() else None
    if not is_concrete(table) or table.ndim < 2:
        return None
    values = np.asarray(table)
    if values.dtype.kind not in "if" or not np.any(_is_blank(values[:, -1:])):
        return None
    if len(values) == 1 and values.dtype.kind == "f":
        return None  # a single client's table has its own length: NaN means a missing value
    blank = _is_blank(values)
    return np.logical_and.accumulate(blank[:, ::-1], axis=1)[:, ::-1]


def _is_blank(values: np.ndarray) -> np.ndarray:
    blank = np.isnan(values) if values.dtype.kind == "f" else values == NO_LABEL
    return blank.reshape(*values.shape[:2], -1).all(axis=2)


def check_own_tables(population: Any) -> None:
    """The same check for padding in a custom population that has tables but no row counts."""
    if getattr(population, "count", None) is not None or np.ndim(population.rows):
        return
    for field in dataclasses.fields(population):
        table = getattr(population, field.name)
        padding = padding_of(table) if field.metadata.get("table") and hasattr(table, "ndim") else None
        if padding is not None:
            _check_padding(type(population).__name__, field.name, padding, None)


def _check_padding(owner: str, name: str, padding: np.ndarray, real: np.ndarray | None) -> None:
    """Raise unless padding starts after `count` rows; without a count there must be none."""
    held = (~padding).sum(axis=1)
    if real is None:
        shorter = int(np.sum(padding.any(axis=1)))
        raise refused(
            "padding-without-count",
            f"{owner}: {name} ends in padding: {shorter} of {len(held)} clients have fewer than "
            f"{padding.shape[1]} rows (client {int(np.argmin(held))} has {held.min()}). Give count=, how many rows "
            "are real, as pf.partition.tables and pf.tables.write return it.",
        )
    over = np.flatnonzero((real & padding).any(axis=1))
    if len(over):
        client = int(over[0])
        said = int(np.broadcast_to(real, padding.shape)[client].sum())
        raise refused(
            "padding-without-count",
            f"{owner}: count[{client}] = {said}, but {name} has {held[client]} real rows of client {client} and "
            "padding after them. Pass the count that came with the table.",
        )

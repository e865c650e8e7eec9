"""Cohorts within a round: one row per client, and rows that are excluded."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree

from performative.types import Cohort, Upload


def spread_out(cohort: Cohort, clients: int) -> Cohort:
    """The same cohort with one row per client; absent clients are inactive."""

    def place(rows: Array, empty: Any) -> Array:
        return jnp.full((clients,), empty, rows.dtype).at[cohort.ids].set(rows, mode="drop")

    steps = None if cohort.steps is None else place(cohort.steps, 1)
    ids = jnp.arange(clients, dtype=cohort.ids.dtype)
    age = None if cohort.age is None else place(cohort.age, 0)
    return Cohort(ids, place(cohort.weight, 0), place(cohort.present, False), steps, cohort.elapsed, age)


def where_rows(active: Array, new: PyTree, old: PyTree) -> PyTree:
    """`new` for active rows, `old` for the others."""

    def pick(n: Array, o: Array) -> Array:
        return jnp.where(active.reshape(active.shape + (1,) * (n.ndim - 1)), n, o)

    return jax.tree.map(pick, new, old)


def leave_out(cohort: Cohort, gone: Bool[Array, " K"]) -> Cohort:
    """The cohort without some of its clients, whose weight goes to the others.

    If none remain, all weights are 0.
    """
    weight = jnp.where(gone, 0, cohort.weight)
    left = jnp.sum(weight)
    weight = weight * jnp.where(left > 0, jnp.sum(cohort.weight) / jnp.where(left > 0, left, 1), 1)
    return dataclasses.replace(cohort, weight=weight, active=cohort.present & ~gone)


def present(cohort: Cohort) -> Bool[Array, " K"]:
    """`cohort.present`, under the name that metrics call: checkpoints compare their code, so it must not change."""
    return cohort.present


def reject_broken(cohort: Cohort, upload: Upload) -> Cohort:
    """The cohort without clients whose update is non-finite.

    If no update is finite there is nothing to fall back on: all stay, and the run is recorded as diverged.
    """
    broken, count = broken_rows(cohort, upload)
    return leave_out(cohort, broken & (count < jnp.sum(cohort.present, dtype=jnp.int32)))


def broken_rows(cohort: Cohort, upload: Upload) -> tuple[Bool[Array, " K"], Int[Array, ""]]:
    """Which clients sent a non-finite update, and how many."""
    finite = [jnp.all(jnp.isfinite(leaf), axis=tuple(range(1, leaf.ndim))) for leaf in jax.tree.leaves(upload.delta)]
    broken = cohort.present & ~functools.reduce(jnp.logical_and, finite)
    return broken, jnp.sum(broken, dtype=jnp.int32)

"""The compiled inner loop: many rounds, many repeats, many settings, in one program."""

import operator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from performative.engine.blocks import map_in_blocks
from performative.engine.keys import run_keys
from performative.engine.report import Report, Setup
from performative.engine.round import federated_round
from performative.engine.sharding import lay_out, whole
from performative.engine.totals import is_total
from performative.types import Secrets, State, squared_norm


class Targets(eqx.Module):
    """Points that distances are recorded to; None where one is not known."""

    stable: PyTree = None
    optimal: PyTree = None


class Watch(eqx.Module):
    """What to record. All of it decides shapes, so all of it is static."""

    every: int = eqx.field(static=True, default=1)
    theta: bool = eqx.field(static=True, default=True)
    executor: str = eqx.field(static=True, default="gather")


def record(state: State, report: Report, targets: Targets, watch: Watch, limit: Array) -> dict[str, Any]:
    """One row of the history: levels as they are now, counts since the last row, and whether the model is sound."""
    levels = dict(report.levels)
    for name in ("stable", "optimal"):
        target = getattr(targets, name)
        if target is not None:
            gap = jax.tree.map(jnp.subtract, state.theta, target)
            levels[f"distance_to_{name}"] = jnp.sqrt(squared_norm(gap))
    return {
        "levels": levels,
        "counts": {"time": report.time, "uploads": report.uploads, **report.metrics},
        "theta": state.theta if watch.theta else None,
        # False where the model has left the numbers or the limit.
        "sound": squared_norm(state.theta) <= limit,
    }


def add_reports(total: Report, last: Report) -> Report:
    """Counts add up; levels are the last round's."""
    return Report(
        last.levels,
        total.time + last.time,
        total.uploads + last.uploads,
        jax.tree.map(operator.add, total.metrics, last.metrics, is_leaf=is_total),
    )


class Span(eqx.Module):
    """How far a chunk goes: `count` records, never past round `rounds`; |theta|^2 above `limit` is not sound.

    `secrets` hold the noise of the chunk's rounds where it comes from the system's entropy: leading axes of rounds,
    repeats and rows of the cohort.
    """

    count: Int[Array, ""]
    rounds: Int[Array, ""]
    limit: Float[Array, ""]
    secrets: Secrets | None = None


class Frozen(eqx.Module):
    """What a chunk reads and does not change.

    In a sweep of several `settings`, `axes` marks the leaves of setup and targets that vary (0) or are shared (None).
    """

    setup: Setup
    targets: Targets
    keys: Any
    axes: Any = None
    settings: int | None = eqx.field(static=True, default=None)


@eqx.filter_jit(donate="all-except-first")
def run_chunk(frozen: tuple[Frozen, Span], state: State, watch: Watch, capacity: int) -> tuple[State, dict[str, Any]]:
    """`span.count` records from `state` on, at most `capacity`.

    State and keys lead with an axis of repeats; the state with one of settings before it in a sweep. The loop is
    outside of the maps over them: it counts rounds for all at once.
    """
    fixed, span = frozen
    keys = jax.vmap(run_keys)(fixed.keys)
    lead = 1 if fixed.settings is None else 2
    first = state.round[(0,) * lead]

    def once(state: State) -> tuple[State, Report]:
        at = state.round[(0,) * lead] - first
        secrets = jax.tree.map(lambda leaf: leaf[at], span.secrets)

        def repeats(setup: Setup, targets: Targets, state: State) -> Any:
            def one(keys: Any, state: State, secrets: Any) -> Any:
                return federated_round(setup, state, keys, watch.executor, secrets)

            return map_in_blocks(one, 0, setup.compute.in_turn, len(keys.select))(keys, state, secrets)

        return over_settings(repeats, fixed, state)

    def note(state: State, report: Report) -> dict[str, Any]:
        def repeats(setup: Setup, targets: Targets, state: State, report: Report) -> Any:
            return jax.vmap(lambda state, report: record(state, report, targets, watch, span.limit))(state, report)

        return over_settings(repeats, fixed, state, report)

    def advance(i: Array, state: State) -> tuple[State, Report]:
        """Rounds up to the next record: `every` of them, fewer at the end."""
        state, report = once(state)
        if watch.every == 1:
            return state, report

        def again(_: Any, carry: Any) -> Any:
            state, total = carry
            state, report = once(state)
            return state, add_reports(total, report)

        left = jnp.minimum(watch.every - 1, span.rounds - (first + i * watch.every + 1))
        return jax.lax.fori_loop(0, left, again, (state, report))

    def body(i: Array, carry: tuple[State, Books]) -> tuple[State, Books]:
        state, books = carry
        state, report = advance(i, state)
        return state, books.write(i, note(state, report))

    shapes = jax.eval_shape(lambda s: note(*once(s)), state)
    # A traced trip count: one compilation serves chunks of every length up to the capacity.
    state, books = jax.lax.fori_loop(0, span.count, body, (state, Books(shapes, lead, capacity)))
    mesh = fixed.setup.mesh
    return lay_out(state, fixed.setup.weights.shape[-1], mesh, lead), whole(books.read(), mesh)


class Books(eqx.Module):
    """Rows of records. All plain numbers of a row share one array, so that a small run pays for one write a row."""

    numbers: Array
    arrays: list[Array]
    plain: tuple[bool, ...] = eqx.field(static=True)
    structure: Any = eqx.field(static=True)
    lead: int = eqx.field(static=True)

    def __init__(self, shapes: PyTree, lead: int, capacity: int):
        leaves, self.structure = jax.tree.flatten(shapes)
        self.lead, self.plain = lead, tuple(leaf.ndim == lead for leaf in leaves)
        dtype = next(leaf.dtype for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating))
        before = leaves[0].shape[:lead]
        self.numbers = jnp.zeros((*before, capacity, sum(self.plain)), dtype)
        rest = [leaf for leaf, plain in zip(leaves, self.plain, strict=True) if not plain]
        self.arrays = [jnp.zeros((*before, capacity, *leaf.shape[lead:]), leaf.dtype) for leaf in rest]

    def write(self, i: Array, row: PyTree) -> "Books":
        """Row i."""

        def put(book: Array, value: Array) -> Array:
            return jax.lax.dynamic_update_index_in_dim(book, value, i, axis=self.lead)

        leaves = list(zip(jax.tree.leaves(row), self.plain, strict=True))
        line = jnp.stack([leaf.astype(self.numbers.dtype) for leaf, plain in leaves if plain], axis=-1)
        rest = [leaf for leaf, plain in leaves if not plain]
        arrays = [put(book, leaf) for book, leaf in zip(self.arrays, rest, strict=True)]
        return eqx.tree_at(lambda b: (b.numbers, b.arrays), self, (put(self.numbers, line), arrays))

    def read(self) -> PyTree:
        """All rows, each leaf with the axis of rows behind the leading ones."""
        columns, arrays = iter(jnp.moveaxis(self.numbers, -1, 0)), iter(self.arrays)
        filled = [next(columns) if plain else next(arrays) for plain in self.plain]
        return jax.tree.unflatten(self.structure, filled)


def over_settings(function: Any, fixed: Frozen, *args: Any) -> Any:
    """function(setup, targets, *args), mapped over the settings of a sweep where there is one.

    Leaves that differ between settings have a leading axis, all others are shared.
    """
    if fixed.settings is None:
        return function(fixed.setup, fixed.targets, *args)
    arrays, rest = eqx.partition((fixed.setup, fixed.targets), eqx.is_array)

    def one(arrays: Any, *args: Any) -> Any:
        setup, targets = eqx.combine(arrays, rest)
        return function(setup, targets, *args)

    axes = (fixed.axes, *(0 for _ in args))
    return map_in_blocks(one, axes, fixed.setup.compute.in_turn, fixed.settings)(arrays, *args)

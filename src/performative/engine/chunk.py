"""The compiled inner loop: many rounds, many repeats, many settings, in one program."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from performative.engine.keys import RunKeys, run_keys
from performative.engine.round import Report, Setup, federated_round
from performative.types import State, squared_norm


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
    levels = {"consensus": report.consensus}
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
        last.consensus,
        total.time + last.time,
        total.uploads + last.uploads,
        jax.tree.map(jnp.add, total.metrics, last.metrics),
    )


def _advance(setup: Setup, watch: Watch, rounds: Array, keys: RunKeys, state: State) -> tuple[State, Report]:
    """Rounds up to the next record: `every` of them, fewer at the end."""

    def once(state: State) -> tuple[State, Report]:
        return federated_round(setup, state, keys, watch.executor)

    state, report = once(state)
    if watch.every == 1:
        return state, report

    def again(_: Any, carry: Any) -> Any:
        state, total = carry
        state, report = once(state)
        return state, add_reports(total, report)

    left = jnp.minimum(watch.every - 1, rounds - state.round)
    return jax.lax.fori_loop(0, left, again, (state, report))


class Span(eqx.Module):
    """How far a chunk goes: `count` records, never past round `rounds`; |theta|^2 above `limit` is not sound."""

    count: Int[Array, ""]
    rounds: Int[Array, ""]
    limit: Float[Array, ""]


class Frozen(eqx.Module):
    """What a chunk reads and does not change.

    In a sweep of several `settings`, `axes` marks the leaves of setup and targets that vary (0) or are shared (None).
    """

    setup: Setup
    targets: Targets
    keys: Any
    axes: Any = None
    settings: int | None = eqx.field(static=True, default=None)


def _one_run(
    setup: Setup, targets: Targets, watch: Watch, capacity: int, span: Span, key: Any, state: State
) -> tuple[State, dict[str, Any]]:
    keys = run_keys(key)

    def row(state: State) -> tuple[State, dict[str, Any]]:
        state, report = _advance(setup, watch, span.rounds, keys, state)
        return state, record(state, report, targets, watch, span.limit)

    shapes = jax.eval_shape(lambda s: row(s)[1], state)
    leaves, structure = jax.tree.flatten(shapes)
    # All plain numbers of a row go into one vector: one write a row instead of ten, which is what a small run pays for.
    plain = [leaf.ndim == 0 for leaf in leaves]
    books = [jnp.zeros((capacity, *leaf.shape), leaf.dtype) for leaf in leaves if leaf.ndim]
    numbers = jnp.zeros((capacity, sum(plain)), setup.weights.dtype)

    def body(i: Array, carry: Any) -> Any:
        state, numbers, books = carry
        state, values = row(state)
        flat = jax.tree.leaves(values)
        line = jnp.stack([v.astype(numbers.dtype) for v, is_plain in zip(flat, plain, strict=True) if is_plain])
        arrays = [v for v, is_plain in zip(flat, plain, strict=True) if not is_plain]
        books = [_put(book, value, i) for book, value in zip(books, arrays, strict=True)]
        return state, _put(numbers, line, i), books

    # A traced trip count: one compilation serves chunks of every length up to the capacity.
    state, numbers, books = jax.lax.fori_loop(0, span.count, body, (state, numbers, books))
    columns, arrays = iter(numbers.T), iter(books)
    filled = [next(columns) if is_plain else next(arrays) for is_plain in plain]
    return state, jax.tree.unflatten(structure, filled)


def _put(book: Array, value: Array, i: Array) -> Array:
    """book[i] = value without the checks for an index that is out of bounds: it never is."""
    return jax.lax.dynamic_update_index_in_dim(book, value, i, axis=0)


@eqx.filter_jit(donate="all-except-first")
def run_chunk(frozen: tuple[Frozen, Span], state: State, watch: Watch, capacity: int) -> tuple[State, dict[str, Any]]:
    """`span.count` records from `state` on, at most `capacity`.

    State and keys lead with an axis of repeats; the state with one of settings before it in a sweep.
    """
    fixed, span = frozen

    def repeats(setup: Setup, targets: Targets, state: State) -> Any:
        def one(key: Any, state: State) -> Any:
            return _one_run(setup, targets, watch, capacity, span, key, state)

        return jax.vmap(one)(fixed.keys, state)

    return over_settings(repeats, fixed, state)


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
    return jax.vmap(one, in_axes=axes, axis_size=fixed.settings)(arrays, *args)

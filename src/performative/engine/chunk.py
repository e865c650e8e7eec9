"""The compiled inner loop: many rounds, many repeats, many settings, in one program."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

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
    """One row of the history."""
    row: dict[str, Any] = {
        "consensus": report.consensus,
        "time": report.time,
        "uploads": report.uploads,
        **report.metrics,
        # False from the first round on at which the model left the numbers or the limit.
        "sound": squared_norm(state.theta) <= limit,
    }
    if watch.theta:
        row["theta"] = state.theta
    for name in ("stable", "optimal"):
        target = getattr(targets, name)
        if target is not None:
            gap = jax.tree.map(jnp.subtract, state.theta, target)
            row[f"distance_to_{name}"] = jnp.sqrt(squared_norm(gap))
    return row


def _advance(setup: Setup, watch: Watch, rounds: Array, key: PRNGKeyArray, state: State) -> tuple[State, Report]:
    """Rounds up to the next record: `every` of them, fewer at the end. Counts add up, the rest is the last round's."""

    def once(state: State) -> tuple[State, Report]:
        return federated_round(setup, state, key, watch.executor)

    state, report = once(state)
    if watch.every == 1:
        return state, report

    def again(_: Any, carry: Any) -> Any:
        state, total = carry
        state, report = once(state)
        return state, Report(
            report.consensus,
            total.time + report.time,
            total.uploads + report.uploads,
            jax.tree.map(jnp.add, total.metrics, report.metrics),
        )

    left = jnp.minimum(watch.every - 1, rounds - state.round)
    return jax.lax.fori_loop(0, left, again, (state, report))


def _one_run(
    setup: Setup, targets: Targets, watch: Watch, capacity: int, count: Array, rounds: Array, limit: Array, key: Any, state: State
) -> tuple[State, dict[str, Any]]:
    def row(state: State) -> tuple[State, dict[str, Any]]:
        state, report = _advance(setup, watch, rounds, key, state)
        return state, record(state, report, targets, watch, limit)

    shapes = jax.eval_shape(lambda s: row(s)[1], state)
    books = jax.tree.map(lambda s: jnp.zeros((capacity, *s.shape), s.dtype), shapes)

    def body(i: Array, carry: Any) -> Any:
        state, books = carry
        state, values = row(state)
        books = jax.tree.map(lambda book, value: book.at[i].set(value), books, values)
        return state, books

    # A traced trip count: one compilation serves chunks of every length up to the capacity.
    return jax.lax.fori_loop(0, count, body, (state, books))


@eqx.filter_jit(donate="all-except-first")
def run_chunk(
    frozen: tuple[Setup, Targets, PyTree, Any],
    state: State,
    watch: Watch,
    capacity: int,
    count: Int[Array, ""],
    rounds: Int[Array, ""],
    limit: Array,
) -> tuple[State, dict[str, Any]]:
    """`count` records from `state` on. `frozen` holds setup, targets, the sweep's axes and the keys.

    State and keys have a leading axis of repeats, and before it one of settings where the sweep's axes say so.
    """
    setup, targets, axes, keys = frozen

    def repeats(setup: Setup, targets: Targets, keys: Any, state: State) -> Any:
        one = lambda key, state: _one_run(setup, targets, watch, capacity, count, rounds, limit, key, state)  # noqa: E731
        return jax.vmap(one)(keys, state)

    if axes is None:
        return repeats(setup, targets, keys, state)
    return over_settings(repeats, axes)(setup, targets, keys, state)


def over_settings(function: Any, axes: tuple[Any, Any]) -> Any:
    """Map over the settings of a sweep: leaves that differ between settings have a leading axis, others are shared."""

    def mapped(setup: Setup, targets: Targets, keys: Any, state: Any) -> Any:
        arrays, rest = eqx.partition((setup, targets), eqx.is_array)

        def one(arrays: Any, state: Any) -> Any:
            here, points = eqx.combine(arrays, rest)
            return function(here, points, keys, state)

        return jax.vmap(one, in_axes=(axes, 0))(arrays, state)

    return mapped

"""The compiled inner loop: many rounds, many repeats, many settings, in one program."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from performative._engine.ahead import can_draw_ahead, draw_round, rounds_ahead
from performative._engine.blocks import map_in_blocks
from performative._engine.compiled import Compiled
from performative._engine.executors import AbstractExecutor, Gather
from performative._engine.keys import run_keys
from performative._engine.records import Report, add_totals, make_row, totals_of, view_of
from performative._engine.setup import Setup
from performative._engine.sharding import lay_out, whole
from performative._engine.simulated import federated_round
from performative._engine.totals import Total
from performative.types import Draws, State, Theta

# Numbers of a row that are written in one pass.
_FEW = 32
# A full chunk draws ahead at least so many times: of the last block, what the chunk does not come to is wasted.
_BLOCKS = 8
# Short chunks draw ahead too, so that their rounds are the same program as those of long ones.
_LEAST = 4


class RecordConfig(eqx.Module):
    """What to record. All of it decides shapes, so all of it is static."""

    every: int = eqx.field(static=True, default=1)
    theta: bool = eqx.field(static=True, default=True)
    executor: AbstractExecutor = eqx.field(static=True, default=Gather())


class ChunkSpec(eqx.Module):
    """How far a chunk goes: `count` records, never past round `rounds`; |theta|^2 above `limit` is not sound.

    `secrets` hold the noise of the chunk's rounds where it comes from the system's entropy: leading axes of rounds,
    repeats and rows of the cohort.
    """

    count: Int[Array | np.ndarray, ""]
    rounds: Int[Array | np.ndarray, ""]
    limit: Float[Array | np.ndarray, ""]
    secrets: Draws | None = None


class RunInputs(eqx.Module):
    """What a chunk reads and does not change.

    In a sweep of several `settings`, `axes` marks the leaves of the setup that vary (0) or are shared (None).
    """

    setup: Setup
    keys: Any
    axes: Any = None
    settings: int | None = eqx.field(static=True, default=None)


class Ahead(eqx.Module):
    """Random numbers that rounds from `first` on find ready, a row for each round; None where they draw their own."""

    first: Int[Array, ""]
    drawn: Draws | None


@functools.partial(Compiled, donate=2, words=2)
def run_chunk(
    fixed: RunInputs, span: ChunkSpec, state: State, watch: RecordConfig, capacity: int
) -> tuple[State, "RecordBuffer"]:
    """`span.count` records from `state` on, at most `capacity`. The state that is given is used up.

    State and keys lead with an axis of repeats; the state with one of settings before it in a sweep. The loop is
    outside of the maps over them: it counts rounds for all at once.
    """
    keys = jax.vmap(run_keys)(fixed.keys)
    lead = 1 if fixed.settings is None else 2
    first = state.round[(0,) * lead]

    def once(state: State, look: PyTree, ahead: Ahead) -> tuple[State, Any]:
        """A round, and what `look(setup, after, report)` makes of it."""
        now = state.round[(0,) * lead]
        drawn = jax.tree.map(lambda leaf: leaf[now - ahead.first], ahead.drawn)

        def repeats(setup: Setup, state: State, drawn: PyTree) -> Any:
            def one(keys: PyTree, state: State, drawn: PyTree) -> Any:
                after, report = federated_round(setup, state, keys, watch.executor, drawn)
                return after, look(setup, after, report)

            return map_in_blocks(one, 0, setup.compute.in_turn, len(keys.select))(keys, state, drawn)

        return over_settings(repeats, fixed, state, drawn)

    def row(setup: Setup, after: State, report: Report) -> dict[str, Any]:
        return make_row(setup, after, report, watch.theta, span.limit)

    def totals(setup: Setup, after: State, report: Report) -> dict[str, Total]:
        return totals_of(setup, view_of(setup, after, report))

    def advance(i: Array, state: State, ahead: Ahead) -> tuple[State, dict[str, Any]]:
        """Rounds up to the next record: `every` of them, fewer at the end. Levels are of the last one alone."""
        if watch.every == 1:
            return once(state, row, ahead)

        def again(_: PyTree, carry: PyTree) -> Any:
            state, before = carry
            state, more = once(state, totals, ahead)
            return state, add_totals(before, more)

        left = jnp.minimum(watch.every - 1, span.rounds - (first + i * watch.every + 1))
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes["totals"])
        state, before = jax.lax.fori_loop(0, left, again, (state, nothing))
        state, last = once(state, row, ahead)
        return state, last | {"totals": add_totals(before, last["totals"])}

    def rows(
        start: Array | int, stop: Array | np.ndarray | int, carry: tuple[State, RecordBuffer], ahead: Ahead
    ) -> tuple[State, RecordBuffer]:
        """Rows start, ..., stop - 1 of the records. A traced count: one compilation serves chunks of every length."""

        def body(i: Array, carry: tuple[State, RecordBuffer]) -> tuple[State, RecordBuffer]:
            state, buffer = carry
            state, line = advance(i, state, ahead)
            return state, buffer.write(i, line)

        return jax.lax.fori_loop(start, stop, body, carry)

    def block(j: Array, carry: tuple[State, RecordBuffer]) -> tuple[State, RecordBuffer]:
        """So many rows that their random numbers are drawn at once."""
        start = j * length
        begins = first + start * watch.every
        drawn = draw_ahead(
            fixed, carry[0].theta, keys, begins + jnp.arange(length * watch.every, dtype=jnp.int32), lead
        )
        return rows(start, jnp.minimum(start + length, span.count), carry, Ahead(begins, drawn))

    length = min(rows_ahead(fixed, span, state, watch, keys, lead), max(capacity // _BLOCKS, _LEAST))
    given = Ahead(first, span.secrets)
    shapes = jax.eval_shape(lambda s: once(s, row, given)[1], state)
    carry = (state, RecordBuffer(shapes, lead, capacity))
    if length > 1:
        state, buffer = jax.lax.fori_loop(0, -(-span.count // length), block, carry)
    else:
        state, buffer = rows(0, span.count, carry, given)
    mesh = fixed.setup.mesh
    return lay_out(state, fixed.setup.weights.shape[-1], mesh, lead), whole(buffer, mesh)


class RecordBuffer(eqx.Module):
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

    def write(self, i: Array, row: PyTree) -> "RecordBuffer":
        """Row i."""

        def put(column: Array, value: Array) -> Array:
            return jax.lax.dynamic_update_index_in_dim(column, value, i, axis=self.lead)

        leaves = list(zip(jax.tree.leaves(row), self.plain, strict=True))
        line = _line([leaf.astype(self.numbers.dtype) for leaf, plain in leaves if plain])
        rest = [leaf for leaf, plain in leaves if not plain]
        arrays = [put(column, leaf) for column, leaf in zip(self.arrays, rest, strict=True)]
        return eqx.tree_at(lambda b: (b.numbers, b.arrays), self, (put(self.numbers, line), arrays))

    def read(self, count: int) -> PyTree:
        """The first rows, on the host, each leaf with the axis of rows behind the leading ones."""
        cut = (slice(None),) * self.lead + (slice(count),)
        columns, arrays = iter(np.moveaxis(np.asarray(self.numbers)[cut], -1, 0)), iter(self.arrays)
        filled = [next(columns) if plain else np.asarray(next(arrays))[cut] for plain in self.plain]
        return jax.tree.unflatten(self.structure, filled)


def _line(numbers: list[Array]) -> Array:
    """Numbers side by side. Chosen by their place, which a compiler makes one pass of, where they are few."""
    if len(numbers) > _FEW:
        return jnp.stack(numbers, axis=-1)
    places, line = jnp.arange(len(numbers)), jnp.zeros((*numbers[0].shape, len(numbers)), numbers[0].dtype)
    for place, number in enumerate(numbers):
        line = jnp.where(places == place, number[..., None], line)
    return line


def rows_ahead(fixed: RunInputs, span: ChunkSpec, state: State, watch: RecordConfig, keys: PyTree, lead: int) -> int:
    """Records whose random numbers are drawn at once; 1 where every round draws its own."""
    if span.secrets is not None or not can_draw_ahead(fixed.setup, state, watch.executor):
        return 1
    one = jax.eval_shape(lambda: draw_ahead(fixed, state.theta, keys, jnp.zeros(1, jnp.int32), lead))
    return rounds_ahead(one) // watch.every


def draw_ahead(fixed: RunInputs, theta: Theta, keys: PyTree, rounds: Int[Array, " R"], lead: int) -> Draws:
    """The numbers of these rounds: axes of rounds, of settings where there are several, of repeats, then clients."""
    shape = jax.tree.map(lambda leaf: leaf[(0,) * lead], theta)

    def of(round: Array) -> Draws:
        def repeats(setup: Setup) -> Draws:
            return jax.vmap(lambda keys: draw_round(setup, shape, keys, round))(keys)

        return over_settings(repeats, fixed)

    return jax.vmap(of)(rounds)


def over_settings(function: Callable[..., PyTree], fixed: RunInputs, *args: PyTree) -> PyTree:
    """function(setup, *args), mapped over the settings of a sweep where there is one.

    Leaves that differ between settings have a leading axis, all others are shared.
    """
    if fixed.settings is None:
        return function(fixed.setup, *args)
    arrays, rest = eqx.partition(fixed.setup, eqx.is_array)

    def one(arrays: PyTree, *args: PyTree) -> PyTree:
        return function(eqx.combine(arrays, rest), *args)

    axes = (fixed.axes, *(0 for _ in args))
    return map_in_blocks(one, axes, fixed.setup.compute.in_turn, fixed.settings)(arrays, *args)

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

# How many numbers of a row are written in one pass.
_FEW = 32
# A full chunk draws ahead at least this many times: the unused part of the last block is wasted.
_BLOCKS = 8
# Short chunks draw ahead too, so their rounds share a program with those of long chunks.
_LEAST = 4


class RecordConfig(eqx.Module):
    """What to record. Everything here determines shapes, so everything is static."""

    every: int = eqx.field(static=True, default=1)
    theta: bool = eqx.field(static=True, default=True)
    executor: AbstractExecutor = eqx.field(static=True, default=Gather())


class ChunkSpec(eqx.Module):
    """How far a chunk goes: `count` records, never past round `rounds`; |theta|^2 above `limit` counts as divergence.

    `secrets` contain the noise of the chunk's rounds if it comes from the system's entropy, with leading axes of
    rounds, repeats and rows of the cohort.
    """

    count: Int[Array | np.ndarray, ""]
    rounds: Int[Array | np.ndarray, ""]
    limit: Float[Array | np.ndarray, ""]
    secrets: Draws | None = None


class RunInputs(eqx.Module):
    """What a chunk reads and does not change.

    In a sweep over `settings`, `axes` marks the leaves of the setup that vary (0) or are shared (None).
    """

    setup: Setup
    keys: Any
    axes: Any = None
    settings: int | None = eqx.field(static=True, default=None)


class Ahead(eqx.Module):
    """Random numbers drawn in advance for rounds from `first` on, one row per round; None if rounds draw their own."""

    first: Int[Array, ""]
    drawn: Draws | None


@functools.partial(Compiled, donate=2, words=2)
def run_chunk(
    fixed: RunInputs, span: ChunkSpec, state: State, watch: RecordConfig, capacity: int
) -> tuple[State, "RecordBuffer"]:
    """Continue from `state` for `span.count` records, at most `capacity`. The buffers of `state` are donated.

    State and keys have a leading axis of repeats; in a sweep the state has an axis of settings before it. The loop is
    outside the maps over these axes: it counts rounds for all of them at once.
    """
    keys = jax.vmap(run_keys)(fixed.keys)
    lead = 1 if fixed.settings is None else 2
    first = state.round[(0,) * lead]

    def once(state: State, look: PyTree, ahead: Ahead) -> tuple[State, Any]:
        """Run a round; also return `look(setup, after, report)`."""
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

    # Traced once, for its shapes, and used again in the loop: a round makes up most of a program.
    recorded = jax.jit(lambda state, ahead: once(state, row, ahead), inline=True)

    def advance(i: Array, state: State, ahead: Ahead) -> tuple[State, dict[str, Any]]:
        """Run the rounds up to the next record: `every` of them, fewer at the end. Levels come from the last round."""
        if watch.every == 1:
            return recorded(state, ahead)

        def again(_: PyTree, carry: PyTree) -> Any:
            state, before = carry
            state, more = once(state, totals, ahead)
            return state, add_totals(before, more)

        left = jnp.minimum(watch.every - 1, span.rounds - (first + i * watch.every + 1))
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes["totals"])
        state, before = jax.lax.fori_loop(0, left, again, (state, nothing))
        state, last = recorded(state, ahead)
        return state, last | {"totals": add_totals(before, last["totals"])}

    def rows(
        start: Array | int, stop: Array | np.ndarray | int, carry: tuple[State, RecordBuffer], ahead: Ahead
    ) -> tuple[State, RecordBuffer]:
        """Rows start, ..., stop - 1 of the records. Traced: one compilation serves chunks of any length."""

        def body(i: Array, carry: tuple[State, RecordBuffer]) -> tuple[State, RecordBuffer]:
            state, buffer = carry
            state, line = advance(i, state, ahead)
            return state, buffer.write(i, line)

        return jax.lax.fori_loop(start, stop, body, carry)

    def drawn_from(begins: Array, theta: Theta) -> Ahead:
        rounds = begins + jnp.arange(length * watch.every, dtype=jnp.int32)
        return Ahead(begins, draw_ahead(fixed, theta, keys, rounds, lead))

    def block(j: Array, carry: tuple[State, RecordBuffer]) -> tuple[State, RecordBuffer]:
        """A block of rows whose random numbers are drawn at once."""
        start = j * length
        ahead = drawn_from(first + start * watch.every, carry[0].theta)
        return rows(start, jnp.minimum(start + length, span.count), carry, ahead)

    length = min(rows_ahead(fixed, span, state, watch, keys, lead), max(capacity // _BLOCKS, _LEAST))
    given = Ahead(first, span.secrets)
    ahead = jax.eval_shape(drawn_from, first, state.theta) if length > 1 else given
    _, shapes = jax.eval_shape(recorded, state, ahead)
    carry = (state, RecordBuffer(shapes, lead, capacity))
    if length > 1:
        state, buffer = jax.lax.fori_loop(0, -(-span.count // length), block, carry)
    else:
        state, buffer = rows(0, span.count, carry, given)
    mesh = fixed.setup.mesh
    return lay_out(state, fixed.setup.weights.shape[-1], mesh, lead), whole(buffer, mesh)


class RecordBuffer(eqx.Module):
    """Rows of records. All scalars of a row share one array, so a small run pays for one write per row."""

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
        """Write row i."""

        def put(column: Array, value: Array) -> Array:
            return jax.lax.dynamic_update_index_in_dim(column, value, i, axis=self.lead)

        leaves = list(zip(jax.tree.leaves(row), self.plain, strict=True))
        line = _line([leaf.astype(self.numbers.dtype) for leaf, plain in leaves if plain])
        rest = [leaf for leaf, plain in leaves if not plain]
        arrays = [put(column, leaf) for column, leaf in zip(self.arrays, rest, strict=True)]
        return eqx.tree_at(lambda b: (b.numbers, b.arrays), self, (put(self.numbers, line), arrays))

    def read(self, count: int) -> PyTree:
        """The first rows, on the host; in each leaf the axis of rows follows the leading axes."""
        cut = (slice(None),) * self.lead + (slice(count),)
        columns, arrays = iter(np.moveaxis(np.asarray(self.numbers)[cut], -1, 0)), iter(self.arrays)
        filled = [next(columns) if plain else np.asarray(next(arrays))[cut] for plain in self.plain]
        return jax.tree.unflatten(self.structure, filled)


def _line(numbers: list[Array]) -> Array:
    """Stack the numbers. If they are few they are selected by position, which the compiler fuses into one pass."""
    if len(numbers) > _FEW:
        return jnp.stack(numbers, axis=-1)
    places, line = jnp.arange(len(numbers)), jnp.zeros((*numbers[0].shape, len(numbers)), numbers[0].dtype)
    for place, number in enumerate(numbers):
        line = jnp.where(places == place, number[..., None], line)
    return line


def rows_ahead(fixed: RunInputs, span: ChunkSpec, state: State, watch: RecordConfig, keys: PyTree, lead: int) -> int:
    """Number of records whose random numbers are drawn at once; 1 if every round draws its own."""
    if span.secrets is not None or not can_draw_ahead(fixed.setup, state, watch.executor):
        return 1
    one = jax.eval_shape(lambda: draw_ahead(fixed, state.theta, keys, jnp.zeros(1, jnp.int32), lead))
    return rounds_ahead(one) // watch.every


def draw_ahead(fixed: RunInputs, theta: Theta, keys: PyTree, rounds: Int[Array, " R"], lead: int) -> Draws:
    """The numbers of these rounds, with axes of rounds, settings (if there are several), repeats and clients."""
    shape = jax.tree.map(lambda leaf: leaf[(0,) * lead], theta)

    def of(round: Array) -> Draws:
        def repeats(setup: Setup) -> Draws:
            return jax.vmap(lambda keys: draw_round(setup, shape, keys, round))(keys)

        return over_settings(repeats, fixed)

    return jax.vmap(of)(rounds)


def over_settings(function: Callable[..., PyTree], fixed: RunInputs, *args: PyTree) -> PyTree:
    """function(setup, *args), mapped over the settings of a sweep if there is one.

    Leaves that differ between settings have a leading axis; all others are shared.
    """
    if fixed.settings is None:
        return function(fixed.setup, *args)
    arrays, rest = eqx.partition(fixed.setup, eqx.is_array)

    def one(arrays: PyTree, *args: PyTree) -> PyTree:
        return function(eqx.combine(arrays, rest), *args)

    axes = (fixed.axes, *(0 for _ in args))
    return map_in_blocks(one, axes, fixed.setup.compute.in_turn, fixed.settings)(arrays, *args)

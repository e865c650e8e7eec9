"""The outer loop in Python: chunks of rounds, and between them books, risks, checkpoints and the progress bar."""

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from performative.engine.audit import audit_clients, measure_risks
from performative.engine.books import Chunk, flatten_rows, last_level
from performative.engine.checkpoint import Checkpoint
from performative.engine.chunk import Frozen, Span, Targets, Watch, over_settings, run_chunk
from performative.engine.loop import loop_chunk
from performative.engine.progress import progress_bar
from performative.engine.round import Setup
from performative.engine.setup import init_state
from performative.types import State, Theta

_CHUNK_BYTES = 1 << 28
# Realised participation is counted for each repeat and client up to this many.
_COUNTERS = 1 << 27


@eqx.filter_jit
def first_state(fixed: Frozen, theta: Theta, counting: bool) -> State:
    """Round 0 of every setting and repeat."""

    def repeats(setup: Setup, targets: Targets) -> State:
        one = init_state(setup, theta, counting)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(fixed.keys), *leaf.shape)), one)

    return over_settings(repeats, fixed)


def chunk_length(rounds: int, watch: Watch, points: int, checkpoint_every: int | None, row_bytes: int) -> int:
    """Records in a chunk: short enough to measure risks, write checkpoints and stay within memory."""
    total = -(-rounds // watch.every)
    length = -(-total // points) if points else total
    if checkpoint_every is not None:
        length = min(length, max(1, checkpoint_every // watch.every))
    return max(1, min(length, _CHUNK_BYTES // row_bytes))


def drive(
    fixed: Frozen,
    start: Theta,
    watch: Watch,
    rounds: int,
    *,
    points: int = 0,
    limit: float = 1e8,
    label: str = "",
    books: Checkpoint | None = None,
    checkpoint_every: int | None = None,
    progress: bool | None = None,
) -> tuple[State, list[Chunk], float]:
    """Run to the end, or to where every repeat has left the numbers. Returns state, chunks and seconds."""
    began = time.perf_counter()
    lead = 1 if fixed.settings is None else 2
    copies = len(fixed.keys) * (fixed.settings or 1)
    weights = fixed.setup.weights
    counting = not fixed.setup.algorithm.participation.everyone and copies * weights.shape[-1] <= _COUNTERS
    state = first_state(fixed, start, counting)
    chunks: list[Chunk] = []
    done, earlier = 0, 0.0
    if books is not None and (found := books.load(state)) is not None:
        state, chunks, notes = found
        done, earlier = notes["done"], notes["seconds"]

    floats = sum(leaf.size for leaf in jax.tree.leaves(start)) if watch.theta else 0
    length = chunk_length(rounds, watch, points, checkpoint_every, 8 * (floats + 8) * copies)
    capacity = 1 << (length - 1).bit_length()
    total = -(-rounds // watch.every)
    size = 1.0 + np.sqrt(sum(float(np.sum(np.square(leaf))) for leaf in jax.tree.leaves(start)))
    dtype = fixed.setup.weights.dtype
    shared = weights if weights.ndim == 1 else weights.mean(axis=0)
    ids, share = audit_clients(np.asarray(shared)) if points else (np.zeros(0, np.int32), np.zeros(0))
    step: Any = loop_chunk if watch.executor == "loop" else run_chunk
    with progress_bar(label, rounds, progress) as update:
        while done < total:
            count = min(length, total - done)
            span = Span(
                jnp.asarray(count, jnp.int32),
                jnp.asarray(rounds, jnp.int32),
                jnp.asarray((limit * size) ** 2, dtype),
            )
            state, rows = step((fixed, span), state, watch, capacity)
            chunk = flatten_rows(rows, lead, count)
            done += count
            if done * points // total > (done - count) * points // total:
                risks = measure_risks(fixed, state, jnp.asarray(ids), jnp.asarray(share, dtype))
                chunk |= {f"risks/{name}": np.asarray(value) for name, value in risks.items()}
                chunk["risk_round"] = np.asarray(min(done * watch.every, rounds))
            chunks.append(chunk)
            seconds = earlier + time.perf_counter() - began
            if books is not None:
                books.save(state, chunks, {"done": done, "seconds": seconds})
            update(min(done * watch.every, rounds), last_level(chunk))
            if not np.any(chunk["sound"][..., -1]):
                break
    return state, chunks, earlier + time.perf_counter() - began

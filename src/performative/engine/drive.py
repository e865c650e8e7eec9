"""The outer loop in Python: chunks of rounds, and between them books, risks, checkpoints and the progress bar."""

import functools
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
from performative.engine.processes import agree, save_once, several
from performative.engine.progress import progress_bar
from performative.engine.report import Setup
from performative.engine.secrets import bytes_of_secrets, draw_secrets
from performative.engine.setup import init_state
from performative.engine.sharding import everywhere, from_host, lay_out, to_host
from performative.types import State, Theta

# Rows are copied to the host chunk by chunk; a chunk's buffer costs its whole size, however full it is.
_CHUNK_BYTES = 1 << 24
# Secure noise that is drawn ahead.
_SECRET_BYTES = 1 << 26
# Where nothing is to be done between chunks: the first takes this share of the run, the others about this long, but so
# many at most: a chunk has its price. A run of fewer client steps than this is over before anyone could look.
_LOOKS = 20
_SECONDS = 0.5
_MOST_LOOKS = 1000
_BRIEF = 1_000_000
# Realised participation is counted for each repeat and client up to this many.
_COUNTERS = 1 << 27


@eqx.filter_jit
def first_state(fixed: Frozen, theta: Theta, counting: bool) -> State:
    """Round 0 of every setting and repeat."""
    lead = 1 if fixed.settings is None else 2

    def repeats(setup: Setup, targets: Targets) -> State:
        one = init_state(setup, theta, counting)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(fixed.keys), *leaf.shape)), one)

    return lay_out(over_settings(repeats, fixed), fixed.setup.weights.shape[-1], fixed.setup.mesh, lead)


def chunk_length(rounds: int, watch: Watch, points: int, checkpoint_every: int | None) -> int | None:
    """Records between two measurements of risk or two checkpoints; None where neither is asked for."""
    total = -(-rounds // watch.every)
    lengths = [-(-total // points)] if points else []
    if checkpoint_every is not None:
        lengths.append(max(1, checkpoint_every // watch.every))
    return min(lengths, default=None)


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
    ledger: Any = None,
) -> tuple[State, list[Chunk], float]:
    """Run to the end, or to where every repeat has left the numbers. Returns state, chunks and seconds."""
    began = time.perf_counter()
    lead = 1 if fixed.settings is None else 2
    copies = len(fixed.keys) * (fixed.settings or 1)
    weights, dtype = fixed.setup.weights, fixed.setup.weights.dtype
    algorithm = fixed.setup.algorithm
    counting = not algorithm.participation.everyone and copies * weights.shape[-1] <= _COUNTERS
    mesh, clients = fixed.setup.mesh, weights.shape[-1]
    if several(mesh) and jax.process_index() > 0:
        progress = False
    state = first_state(fixed, everywhere(start, mesh), counting)
    total = -(-rounds // watch.every)
    chunks: list[Chunk] = []
    done, earlier = 0, 0.0
    found = None
    if books is not None:
        back = functools.partial(from_host, clients=clients, mesh=mesh, lead=lead)
        found = books.load(to_host(state, clients, mesh, lead), back)
    if found is not None:
        state, chunks, notes = found
        done, earlier = notes["done"], notes["seconds"]
        if notes["round"] > rounds:
            raise ValueError(f"rounds={rounds}: the run in the checkpoint is already at round {notes['round']}.")
        if done < total and notes["round"] != done * watch.every:
            raise ValueError(
                f"rounds={rounds}: the run in the checkpoint ended at round {notes['round']}, which is no multiple of "
                f"every={watch.every}, so it cannot be made longer."
            )

    if several(mesh):
        agree("checkpoint: the records found", done, "Give a folder that all of them see.")
    floats = sum(leaf.size for leaf in jax.tree.leaves(start)) if watch.theta else 0
    most = max(1, min(total, _CHUNK_BYTES // (8 * (floats + 8) * copies)))
    secure = ledger is not None and ledger.secure
    if secure:
        most = max(1, min(most, _SECRET_BYTES // (watch.every * bytes_of_secrets(fixed, start, watch))))
    fixed_length = chunk_length(rounds, watch, points, checkpoint_every)
    brief = rounds * copies * algorithm.participation.size(weights.shape[-1]) * algorithm.steps < _BRIEF
    length = min(most, fixed_length or (total if brief else max(1, total // _LOOKS)))
    capacity = 1 << ((most if fixed_length is None else length) - 1).bit_length()
    size = 1.0 + np.sqrt(sum(float(np.sum(np.square(leaf))) for leaf in jax.tree.leaves(start)))
    bound = jnp.asarray(min((limit * size) ** 2, float(jnp.finfo(dtype).max)), dtype)
    shared = weights if weights.ndim == 1 else weights.mean(axis=0)
    ids, expected = audit_clients(np.asarray(shared), mesh) if points else (np.zeros(0, np.int32), np.zeros(0))
    measured = everywhere((jnp.asarray(ids), jnp.asarray(expected, dtype)), mesh)
    # By the program that measures along the run, so that it is compiled once.
    first_risk = measure_risks(fixed, state, *measured)["performative_risk"] if points and not chunks else None
    step: Any = loop_chunk if watch.executor == "loop" else run_chunk
    with progress_bar(label, rounds, progress) as update:
        # What no repeat survives is not run again after a kill, either.
        while done < total and (not chunks or np.any(chunks[-1]["sound"][..., -1])):
            count = min(length, total - done)
            reached = min((done + count) * watch.every, rounds)
            secrets = None
            if ledger is not None:
                ledger.write(reached)
            if secure:
                secrets = draw_secrets(fixed, start, watch, reached - done * watch.every, capacity * watch.every)
            span = Span(jnp.asarray(count, jnp.int32), jnp.asarray(rounds, jnp.int32), bound, secrets)
            span = everywhere(span, mesh)
            looked = time.perf_counter()
            state, rows = step((fixed, span), state, watch, capacity)
            chunk = flatten_rows(rows, lead, count)
            # Nothing to do in between but to show and to look: twice a second is enough. Clocks of processes differ.
            if fixed_length is None and not several(mesh):
                pace = count / max(time.perf_counter() - looked, 1e-6)
                length = int(np.clip(pace * _SECONDS, min(most, 1 + total // _MOST_LOOKS), most))
            done += count
            if done * points // total > (done - count) * points // total:
                risks = measure_risks(fixed, state, *measured)
                chunk |= {f"risks/{name}": np.asarray(value) for name, value in risks.items()}
                chunk["risk_round"] = np.asarray(reached)
            if not chunks and first_risk is not None:
                chunk["first_risk"] = np.asarray(first_risk)
            chunks.append(chunk)
            if books is not None:
                seconds = earlier + time.perf_counter() - began
                notes = {"done": done, "round": reached, "seconds": seconds}
                notes |= {} if ledger is None else {"ledger": ledger.told}
                save_once(books, to_host(state, clients, mesh, lead), chunks, notes, mesh)
            update(reached, functools.partial(progress_note, chunk, ledger, reached))
    return state, chunks, earlier + time.perf_counter() - began


def progress_note(chunk: Chunk, ledger: Any, reached: int) -> str:
    """What the progress line says."""
    spent = "" if ledger is None else f"epsilon {ledger.spent(reached).epsilon:.3g}"
    return ", ".join(filter(None, (last_level(chunk), spent)))

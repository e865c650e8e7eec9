"""The outer loop in Python: chunks of rounds, with risks, checkpoints and callbacks in between."""

import functools
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from performative._base.checks import check_room
from performative._engine.assemble import Chunk, flatten_rows, news_of
from performative._engine.checkpoint import RunFolder
from performative._engine.chunk import ChunkSpec, RecordBuffer, RecordConfig, RunInputs, over_settings, run_chunk
from performative._engine.keys import run_keys
from performative._engine.ledgers import published_names, with_epsilon
from performative._engine.loop import loop_chunk
from performative._engine.memory import bytes_of
from performative._engine.processes import agree, from_all, save_once, several
from performative._engine.records import levels_at_start
from performative._engine.risk_records import final_models, measure_risks, measured_clients
from performative._engine.round import begin_server
from performative._engine.secrets import draw_secrets, shapes_of_secrets
from performative._engine.setup import Setup, init_state
from performative._engine.sharding import everywhere, from_host, lay_out, to_host, whole
from performative.callbacks.calls import Calls
from performative.callbacks.news import News
from performative.callbacks.progress import Progress
from performative.types import State, Theta

# Rows are copied to the host chunk by chunk; a chunk's buffer takes its full size, however few rows it has.
_CHUNK_BYTES = 1 << 24
# Limit on secure noise drawn in advance.
_SECRET_BYTES = 1 << 26
# If there is nothing to do between chunks: the first takes this fraction of the run, the others about this long, but at
# most this many, since chunks have overhead. A run of fewer client steps than this ends before anyone could look.
_LOOKS = 20
_SECONDS = 0.5
_MOST_LOOKS = 1000
_BRIEF = 1_000_000
# Realized participation is counted for each repeat and client up to this many entries.
_COUNTERS = 1 << 27


class Driven(NamedTuple):
    """A finished run. `first` are the levels before the first round; `stopped_by` names the callback that ended it.

    `models` are those that each client's people see, if clients have their own models.
    """

    state: State
    chunks: list[Chunk]
    seconds: float
    first: dict[str, np.ndarray]
    stopped_by: str | None = None
    models: Theta = None


@eqx.filter_jit
def first_state(fixed: RunInputs, theta: Theta, counting: bool) -> tuple[State, dict[str, Array]]:
    """The state at round 0 of every setting and repeat, and the levels defined there."""
    lead = 1 if fixed.settings is None else 2

    def repeats(setup: Setup) -> Any:
        state = init_state(setup, theta, counting)
        one = state, levels_at_start(setup, state.theta)
        several = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(fixed.keys), *leaf.shape)), one)
        begun = jax.vmap(lambda key: begin_server(setup, state, run_keys(key)))(fixed.keys)
        return eqx.tree_at(lambda made: made[0].server.participation, several, begun, is_leaf=lambda x: x is None)

    state, levels = over_settings(repeats, fixed)
    mesh = fixed.setup.mesh
    return lay_out(state, fixed.setup.weights.shape[-1], mesh, lead), whole(levels, mesh)


def chunk_length(rounds: int, every: int, points: int, stops: Sequence[int | None]) -> int | None:
    """Records between measurements of risk, checkpoints or callbacks; None if none of them is requested."""
    total = -(-rounds // every)
    lengths = [-(-total // points)] if points else []
    lengths += [max(1, stop // every) for stop in stops if stop is not None]
    return min(lengths, default=None)


def drive(
    fixed: RunInputs,
    start: Theta,
    watch: RecordConfig,
    rounds: int,
    *,
    points: int = 0,
    limit: float = 1e8,
    about: dict[str, Any] | None = None,
    folder: RunFolder | None = None,
    checkpoint_every: int | None = None,
    calls: Calls | None = None,
    ledger: Any = None,
    settings: list[dict[str, Any]] | None = None,
) -> Driven:
    """Run to the end, until a callback stops the run, or until every repeat is non-finite."""
    began, about, calls = time.perf_counter(), about or {}, calls or Calls()
    lead = 1 if fixed.settings is None else 2
    copies = len(fixed.keys) * (fixed.settings or 1)
    weights, algorithm, mesh = fixed.setup.weights, fixed.setup.algorithm, fixed.setup.mesh
    clients, dtype = weights.shape[-1], weights.dtype
    size = algorithm.participation.size(clients)
    counting = not algorithm.participation.is_full and copies * clients <= _COUNTERS
    if several(mesh) and jax.process_index() > 0:
        calls = Calls([Progress(False)])
    total = -(-rounds // watch.every)
    floats = sum(leaf.size for leaf in jax.tree.leaves(start)) if watch.theta else 0
    floats += len(fixed.setup.clients) * clients + 3 * watch.executor.rows(size, clients) * fixed.setup.cohorts
    # Levels and totals are about eight numbers more; half of all, since most have 4 bytes and not 8.
    remedy = "Use fewer repeats, or record less often: record=pf.Record(every=...)."
    check_room("records of the run", (floats + 8) * copies * total // 2, remedy, rounds=rounds, repeats=copies)
    state, first = first_state(fixed, everywhere(start, mesh), counting)
    chunks: list[Chunk] = []
    done, earlier, told = 0, 0.0, 0
    found = None
    if folder is not None:
        back = functools.partial(from_host, clients=clients, mesh=mesh, lead=lead)
        found = folder.load(to_host(state, clients, mesh, lead), back)
    if found is not None:
        state, chunks, notes = found
        done, earlier = notes["done"], notes["seconds"]
        if notes["round"] > rounds:
            raise ValueError(f"rounds={rounds}: the run in the checkpoint is already at round {notes['round']}.")
        if done < total and notes["round"] != done * watch.every:
            raise ValueError(
                f"rounds={rounds}: the run in the checkpoint ended at round {notes['round']}, which is not a "
                f"multiple of every={watch.every}, so it cannot be extended."
            )

    if several(mesh):
        agree("checkpoint: the records found", done, "Use a folder that all of them can read.")
    most = max(1, min(total, _CHUNK_BYTES // (8 * (floats + 8) * copies)))
    secure = ledger is not None and ledger.secure
    if secure:
        most = max(1, min(most, _SECRET_BYTES // (watch.every * bytes_of(shapes_of_secrets(fixed, start, watch)))))
    stops = [checkpoint_every, *calls.every]
    if calls.users and not points and not any(stops):
        stops.append(max(1, rounds // _LOOKS))
    fixed_length = chunk_length(rounds, watch.every, points, stops)
    brief = rounds * copies * size * algorithm.steps < _BRIEF
    length = min(most, fixed_length or (total if brief else max(1, total // _LOOKS)))
    capacity = 1 << ((most if fixed_length is None else length) - 1).bit_length()
    scale = 1.0 + np.sqrt(sum(float(np.sum(np.square(leaf))) for leaf in jax.tree.leaves(start)))
    bound = np.asarray(min((limit * scale) ** 2, float(jnp.finfo(dtype).max)), dtype)
    shared = weights if weights.ndim == 1 else weights.mean(axis=0)
    ids, expected = measured_clients(np.asarray(shared), mesh) if points else (np.zeros(0, np.int32), np.zeros(0))
    measured = everywhere((jnp.asarray(ids), jnp.asarray(expected, dtype)), mesh)
    # With the program that measures during the run, so it is compiled once.
    first_risk = measure_risks(fixed, state, *measured)["performative_risk"] if points and not chunks else None
    step: Any = run_chunk if watch.executor.compiled else loop_chunk
    opening = {name: np.asarray(value) for name, value in first.items()}
    published = None if ledger is None else published_names(fixed.setup)

    def tell(chunks: list[Chunk], known: int) -> str | None:
        """Call the callbacks; return the reason to stop, if any."""

        def news() -> News:
            seconds = earlier + time.perf_counter() - began
            theta = jax.tree.map(np.asarray, state.theta)
            facts = {"theta": theta, "seconds": seconds, "about": about, "settings": settings}
            made = news_of(chunks, known, opening, watch.every, rounds, **facts)
            return made if ledger is None else with_epsilon(made, ledger, len(fixed.keys))

        reasons = calls.tell(news, published)
        if several(mesh) and max(from_all(int(bool(reasons)))):
            return reasons[0] if reasons else "a callback of the first process"
        return reasons[0] if reasons else None

    calls.begin(about, rounds)
    stopped = None
    try:
        if chunks:
            stopped, told = tell(chunks, 0), len(chunks)
        # A run whose repeats have all diverged does not continue after a kill either.
        while stopped is None and done < total and (not chunks or np.any(chunks[-1]["sound"][..., -1])):
            count = min(length, total - done)
            reached = min((done + count) * watch.every, rounds)
            secrets = None
            if ledger is not None:
                ledger.write(reached)
            if secure:
                secrets = draw_secrets(fixed, start, watch, reached - done * watch.every, capacity * watch.every)
            span = ChunkSpec(np.asarray(count, np.int32), np.asarray(rounds, np.int32), bound, secrets)
            span = everywhere(span, mesh)
            looked = time.perf_counter()
            state, rows = step(fixed, span, state, watch, capacity)
            chunk = flatten_rows(rows.read(count) if isinstance(rows, RecordBuffer) else rows)
            # With nothing but display and callbacks in between, twice a second is enough. Clocks of processes differ.
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
            if folder is not None:
                seconds = earlier + time.perf_counter() - began
                notes = {"done": done, "round": reached, "seconds": seconds}
                notes |= {} if ledger is None else {"ledger": ledger.told}
                save_once(folder, to_host(state, clients, mesh, lead), chunks, notes, mesh)
            stopped, told = tell(chunks, told), len(chunks)
    finally:
        calls.close()
    models = None if algorithm.sharing.is_one else final_models(fixed, state)
    return Driven(state, chunks, earlier + time.perf_counter() - began, opening, stopped, models)

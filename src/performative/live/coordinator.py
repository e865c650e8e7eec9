"""The server of a live federation: the same rounds as `pf.run`, with clients that may fail."""

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from performative.engine.books import Chunk, flatten_rows, write_history
from performative.engine.chunk import Frozen, Watch
from performative.engine.loop import record_one
from performative.engine.run import add_ledger, read_ledger
from performative.history import History
from performative.live.books import ServerBooks, model_versions, only_one, read_model
from performative.live.federation import Federation, Ready
from performative.live.round import Outcome, live_round, same_model
from performative.live.transport import AbstractTransport
from performative.types import State, squared_norm

# A model longer than this times (1 + |start|) has diverged, as in `pf.run`.
_LIMIT = 1e8


class LiveState(eqx.Module):
    """What the server carries from round to round.

    accepted: the last round in which each client's answer was used, -1 for none
    version:  of the model in the world's hands: 0 for the start, one more each time that another is deployed
    """

    state: State
    accepted: Int[Array, " N"]
    version: Int[Array, ""]


def serve(
    federation: Federation,
    transport: AbstractTransport,
    folder: str | os.PathLike[str],
    *,
    resume: bool = False,
    rounds: int | None = None,
    on_round: Callable[[dict[str, Any]], None] | None = None,
) -> History:
    """Run the rounds of a federation, each written down before the next begins, and return what was recorded.

    folder:   where checkpoint, models, events and history.nc are kept; with resume=True the run that is there goes on
    rounds:   instead of the federation's
    on_round: called with the facts of each round
    """
    with only_one(folder), federation.precision():
        ready = federation.ready
        books = ServerBooks(folder, ready.facts, resume)
        ledger = read_ledger(federation.privacy, federation.problem, federation.algorithm, books.checkpoint)
        wanted = federation.rounds if rounds is None else rounds
        most = wanted if ledger is None else ledger.most_rounds(wanted)
        live, chunks, seconds = _load(ready, books)
        if int(live.state.round) > most:
            raise ValueError(f"rounds={most}: the run in {folder} is already at round {int(live.state.round)}.")
        run, watch = books.run["run"], Watch(1, True, "live")
        bound = jnp.asarray((_LIMIT * (1 + float(jnp.sqrt(squared_norm(ready.start))))) ** 2, ready.setup.weights.dtype)
        facts: dict[str, Any] = {"run": run, "rounds": most}
        try:
            while int(live.state.round) < most and (not chunks or chunks[-1]["sound"].all()):
                at, began = int(live.state.round), time.monotonic()
                if ledger is not None:
                    ledger.write(at + 1)
                outcome = live_round(federation, transport, books, run, live.state, live.accepted, int(live.version))
                live = _advance(live, outcome, at)
                row = record_one(live.state, outcome.report, ready.targets, watch, bound)
                chunks.append(flatten_rows(jax.tree.map(lambda leaf: leaf[None, None], row), 1, 1))
                seconds += time.monotonic() - began
                books.checkpoint.save(live, chunks, {"done": len(chunks), "round": at + 1, "seconds": seconds})
                told = outcome.told | {"seconds": round(time.monotonic() - began, 3)}
                if ledger is not None:
                    told["epsilon"] = ledger.spent(at + 1).epsilon
                books.tell_round(**facts, state="running", **told)
                if on_round is not None:
                    on_round(told)
        except BaseException as error:
            books.tell(**facts, state="failed", round=int(live.state.round), why=f"{type(error).__name__}: {error}")
            raise
        history = _history(ready, federation, live, chunks, most, seconds)
        if ledger is not None:
            history = add_ledger(history, ledger, most, wanted)
        history.save(Path(folder) / "history.nc")
        latest = int(live.version) if same_model(live.state.theta, live.state.deployed) else int(live.version) + 1
        if history.status == "completed":
            books.keep_model(latest, live.state.theta, round=int(live.state.round))
        books.tell(**facts, state=history.status, round=int(live.state.round), version=latest)
        return history


def rollback(federation: Federation, folder: str | os.PathLike[str], version: int) -> int:
    """Make an earlier model the current one; the next round deploys it under a new version. Returns that round.

    Rounds go on counting: nothing that happened is taken out of the books. Memories of clients and aggregator stay.
    """
    with only_one(folder), federation.precision():
        ready = federation.ready
        books = ServerBooks(folder, ready.facts, resume=True)
        live, chunks, _ = _load(ready, books)
        at = int(live.state.round)
        theta = jax.tree.map(jnp.asarray, read_model(folder, version, ready.start))
        # The number of a model that was made and not deployed stays its own.
        last = jnp.asarray(max(model_versions(folder)), jnp.int32)
        live = dataclasses.replace(live, state=dataclasses.replace(live.state, theta=theta), version=last)
        found = books.checkpoint.load(live)
        notes = {"done": 0, "round": 0, "seconds": 0.0} if found is None else found[2]
        books.checkpoint.save(live, chunks, notes)
        books.note("rollback", at, version=version)
        return at


def _load(ready: Ready, books: ServerBooks) -> tuple[LiveState, list[Chunk], float]:
    clients = ready.setup.weights.shape[0]
    version = jnp.asarray(books.run["version"], jnp.int32)
    first = LiveState(ready.state, jnp.full((clients,), -1, jnp.int32), version)
    found = books.checkpoint.load(first)
    if found is None:
        return first, [], 0.0
    live, chunks, notes = found
    return live, chunks, notes["seconds"]


def _advance(live: LiveState, outcome: Outcome, at: int) -> LiveState:
    accepted = live.accepted
    if outcome.used:
        accepted = accepted.at[jnp.asarray(outcome.used, jnp.int32)].set(at)
    return LiveState(outcome.state, accepted, jnp.asarray(outcome.version, jnp.int32))


def _history(
    ready: Ready, federation: Federation, live: LiveState, chunks: list[Chunk], rounds: int, seconds: float
) -> History:
    state = jax.tree.map(lambda leaf: np.asarray(leaf)[None], live.state)
    meta = {
        "algorithm": federation.algorithm.name,
        "config": ready.facts["algorithm"],
        "seed": federation.seed,
        "dtype": str(ready.setup.weights.dtype),
        "seconds": round(seconds, 4),
    }
    fixed = Frozen(ready.setup, ready.targets, None)
    return write_history(fixed, ready.start, Watch(1, True, "live"), rounds, chunks, state, meta)

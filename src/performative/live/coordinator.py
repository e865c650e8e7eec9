"""The server of a live federation: the same rounds as `pf.run`, with clients that may fail."""

import dataclasses
import itertools
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from performative._base.checks import check_counts
from performative._base.files import only_one
from performative._base.messages import warn
from performative._engine.assemble import Chunk, flatten_rows, news_of, write_history
from performative._engine.cautions import remedy
from performative._engine.chunk import RecordConfig, RunInputs
from performative._engine.ledgers import add_ledger, published_names, read_ledger, with_epsilon
from performative._engine.prepare import check_length
from performative.callbacks.calls import Calls
from performative.callbacks.news import News
from performative.callbacks.progress import Progress
from performative.history import History
from performative.live.federation import Federation, Ready
from performative.live.flight import Flight
from performative.live.retention import check_history, check_same_records, file_names, put_together
from performative.live.round import Outcome, live_round
from performative.live.server_store import ServerStore, read_model, read_rounds, same_model
from performative.live.transport import AbstractTransport
from performative.types import State

# Rounds at the end without a single answer after which a run counts as failed.
_LAST = 3


class LiveState(eqx.Module):
    """What the server carries from round to round.

    Args:
        accepted: the last round in which each client's answer was used, -1 for none
        version: of the deployed model: 0 for the start, incremented with each new deployment
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
    callbacks: Sequence[Any] = (),
) -> History:
    """Run the rounds of a federation, each saved before the next begins, and return the history.

    Args:
        folder: where checkpoint, models, events and history.nc are kept; with resume=True the run there continues
        rounds: overrides the federation's number of rounds
        on_round: called with the facts of each round
        callbacks: called after each round with its records, as in `pf.run`; `news.stop` ends the run

    `history.status` is "failed" if no round, or none of the last three, used an answer; `history.meta["failed"]` and a
    warning say why.
    """
    with only_one(Path(folder), f"another server is running in {folder}; stop it first"), federation.precision():
        ready, calls = federation.ready, Calls([*callbacks, Progress(False)])
        store = ServerStore(folder, ready.facts, resume)
        ledger = read_ledger(
            federation.privacy, federation.problem, federation.algorithm, store.checkpoint, federation.theta,
            unseen_rows=federation.source is not None, seen=federation.record.looks_at() + calls.looks_at(),
            secure_threshold=federation.secure_threshold,
        )  # fmt: skip
        wanted = federation.rounds if rounds is None else rounds
        check_counts(rounds=wanted)
        check_length(wanted, federation.algorithm)
        if federation.record.theta == "all":
            check_history(ready.shared, wanted)
        most = wanted if ledger is None else ledger.most_rounds(wanted)
        began_with = store.begin(ready.identity)
        live, chunks, seconds = _load(ready, store, began_with["version"])
        check_same_records(chunks, federation.record.theta == "all")
        if int(live.state.round) > most:
            raise ValueError(f"rounds={most}: the run in {folder} is already at round {int(live.state.round)}.")
        run, diverged = began_with["run"], None
        facts: dict[str, Any] = {"run": run, "rounds": most}
        about = {"algorithm": federation.algorithm.name, "seed": federation.seed, "config": ready.facts["algorithm"]}
        stopped: str | None = None

        def tell(live: LiveState, known: int) -> str | None:
            reasons = calls.tell(lambda: _news(ready, live, chunks, known, most, seconds, about, ledger), published)
            return reasons[0] if reasons else None

        published = None if ledger is None else published_names(ready.setup)
        try:
            calls.begin(about, most)
            rule: Any = federation.algorithm.participation
            flight = Flight(rule) if rule.stays_at_work else None
            known = 0
            if chunks:
                stopped, known = tell(live, known), len(chunks)
            while int(live.state.round) < most and diverged is None and stopped is None:
                at, began = int(live.state.round), time.monotonic()
                if ledger is not None:
                    ledger.write(at + 1)
                outcome = live_round(
                    federation, transport, store, run, live.state, live.accepted, int(live.version), flight
                )
                live, diverged = _advance(live, outcome), outcome.told.get("diverged")
                chunks = put_together(chunks)
                known = len(chunks)
                chunks.append(flatten_rows(jax.tree.map(lambda leaf: leaf[None, None], outcome.row)))
                seconds += time.monotonic() - began
                notes = {"done": at + 1, "round": at + 1, "seconds": seconds, "run": run}
                notes |= {} if ledger is None else {"ledger": ledger.told}
                told = outcome.told | {"seconds": round(time.monotonic() - began, 3)}
                if ledger is not None:
                    told["epsilon"] = ledger.spent(at + 1).epsilon
                round_facts = facts | {"state": "running"} | told
                store.journal.write("round", **round_facts)  # first: the signed log knows every round that counts
                store.checkpoint.save(live, chunks, notes, file_names(chunks))
                store.tell_round(**round_facts)
                if on_round is not None:
                    on_round(told)
                stopped, known = tell(live, known), len(chunks)
            history = _history(ready, federation, live, chunks, most, seconds, stopped)
            if diverged is not None:
                history = dataclasses.replace(history, stopped_at=np.asarray([int(live.state.round)]))
            history = _judge(history, read_rounds(folder, run))
            if ledger is not None:
                history = add_ledger(history, ledger, most, wanted)
            history.save(Path(folder) / "history.nc")
            fresh = not same_model(live.state.theta, live.state.deployed)
            latest = store.keep_model(int(live.version) + fresh, live.state.theta, round=int(live.state.round))
            why = diverged or history.meta.get("failed")
            ended = {"version": latest, "why": why, "notes": history.meta.get("notes", [])}
            store.journal.write("run ended", **facts, state=history.status, round=int(live.state.round), why=why)
            store.tell(**facts, **ended, state=history.status, round=int(live.state.round))
        except BaseException as error:
            store.tell(**facts, state="failed", round=int(live.state.round), why=f"{type(error).__name__}: {error}")
            raise
        finally:
            calls.close()
    if history.status == "failed":
        warn("nothing-was-learned", history.meta["failed"])
    if history.status == "diverged":
        what = "try a smaller learning rate, or give the problem a domain."
        if federation.source is None:  # otherwise the problem is only a stand-in for the data
            with federation.precision():
                what = remedy(federation.problem, federation.algorithm, ready.start, ready.stable)
        warn("run-diverged", f"{diverged}; {what}")
    return history


def _judge(history: History, rounds: list[dict[str, Any]]) -> History:
    """Add the consequences of idle rounds to the history: a round that used no update left the model unchanged.

    A run has failed if no round changed the model, or none of the last three in which clients were asked.
    """
    asked = [told for told in rounds if told["asked"]]
    idle = [told for told in asked if not told.get("used", told["heard"])]
    tail = sum(1 for _ in itertools.takewhile(lambda told: told in idle, reversed(asked)))
    if history.status == "diverged" or (asked and not idle):
        return history
    meta = dict(history.meta)
    if not asked:
        meta["failed"] = f"no client was asked in any of the {len(rounds)} rounds, so the model never changed."
    elif tail == len(asked):
        meta["failed"] = (
            f"{_cause(idle[0])}; no answer was used in any of the {len(asked)} rounds, so the model never changed."
        )
    elif tail >= _LAST:
        first = asked[-tail]
        meta["failed"] = (
            f"{_cause(first)}; no answer was used in the last {tail} of {len(asked)} rounds, so the model is that of "
            f"round {first['round'] - 1}."
        )
    else:
        note = f"{len(idle)} of {len(asked)} rounds used no update and left the model unchanged; the first, "
        note += _cause(idle[0])
        meta["notes"] = [*meta.get("notes", []), note]
    return dataclasses.replace(history, meta=meta)


def _cause(told: dict[str, Any]) -> str:
    """Why a round used no update."""
    return f"round {told['round']}: {told.get('idle', 'no client answered').rstrip('.')}"


def rollback(federation: Federation, folder: str | os.PathLike[str], version: int) -> int:
    """Make an earlier model the current one; the next round deploys it as a new version. Returns that round.

    That round sends it to every client, including those not sampled; clients that are not reached are sent the deployed
    model in later rounds until all have it.

    The round count continues: nothing is removed from the records. The memories of clients and aggregator are kept, as
    are clients' personal models.
    """
    with only_one(Path(folder), f"another server is running in {folder}; stop it first"), federation.precision():
        ready = federation.ready
        store = ServerStore(folder, ready.facts, resume=True)
        began_with = store.begin(ready.identity)
        live, chunks, seconds = _load(ready, store, began_with["version"])
        at = int(live.state.round)
        theta = jax.tree.map(jnp.asarray, read_model(folder, version, ready.shared))
        # It is deployed from the next round on, whatever the deployment rule says.
        live = dataclasses.replace(live, state=dataclasses.replace(live.state, theta=theta, deployed=theta))
        notes = {"done": at, "round": at, "seconds": seconds, "run": began_with["run"]}
        store.note("rollback", at, version=version)
        store.keep_unreached(list(range(federation.clients)))
        store.checkpoint.save(live, chunks, notes, file_names(chunks))
        return at


def _load(ready: Ready, store: ServerStore, version: int) -> tuple[LiveState, list[Chunk], float]:
    clients = ready.setup.weights.shape[0]
    first = LiveState(ready.state, jnp.full((clients,), -1, jnp.int32), jnp.asarray(version, jnp.int32))
    found = store.checkpoint.load(first)
    if found is None:
        return first, [], 0.0
    live, chunks, notes = found
    return live, chunks, notes["seconds"]


def _advance(live: LiveState, outcome: Outcome) -> LiveState:
    accepted = live.accepted
    if outcome.used:
        clients, rounds = (jnp.asarray(list(one), jnp.int32) for one in (outcome.used, outcome.used.values()))
        accepted = accepted.at[clients].set(rounds)
    return LiveState(outcome.state, accepted, jnp.asarray(outcome.version, jnp.int32))


def _news(
    ready: Ready, live: LiveState, chunks: list[Chunk], known: int, rounds: int, seconds: float, about: dict[str, Any],
    ledger: Any,
) -> News:  # fmt: skip
    theta = jax.tree.map(lambda leaf: np.asarray(leaf)[None], live.state.theta)
    news = news_of(chunks, known, ready.first, 1, rounds, theta=theta, seconds=seconds, about=about)
    return news if ledger is None else with_epsilon(news, ledger, 1)


def _history(
    ready: Ready,
    federation: Federation,
    live: LiveState,
    chunks: list[Chunk],
    rounds: int,
    seconds: float,
    stopped: str | None,
) -> History:
    state = jax.tree.map(lambda leaf: np.asarray(leaf)[None], live.state)
    meta: dict[str, Any] = {
        "algorithm": federation.algorithm.name,
        "config": ready.facts["algorithm"],
        "seed": federation.seed,
        "dtype": str(ready.setup.weights.dtype),
        "seconds": round(seconds, 4),
        "executor": "live",
    }
    meta |= {} if stopped is None else {"stopped_by": stopped}
    unheard = sum(int(np.sum(chunk[f"totals/{name}"])) for chunk in chunks for name in ("rejected", "missing"))
    if unheard:
        what = "1 answer was" if unheard == 1 else f"{unheard} answers were"
        meta["notes"] = [
            f"{what} missing or rejected; their weight went to the other clients, so the weights are "
            "unbiased only if that was independent of the data. `participation` contains each client's actual weight."
        ]
    watch = RecordConfig(1, federation.record.theta == "all")
    return write_history(RunInputs(ready.setup, None), ready.start, watch, rounds, chunks, state, meta, ready.first)

"""One round over a network: ask, screen, aggregate, decide whether the new model may be deployed."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from performative.engine.client import reach
from performative.engine.loop import close_one, open_one
from performative.engine.report import Report, leave_out
from performative.engine.secrets import client_secrets, secret_keys
from performative.live.books import ServerBooks
from performative.live.federation import NOTHING, Federation, Ready, adds_private_noise
from performative.live.gathering import Gathered, Stale, gather
from performative.live.screen import Screen
from performative.live.transport import AbstractTransport
from performative.live.wire import decode, digest, encode, flatten
from performative.types import Broadcast, Cohort, State, Upload, squared_norm


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The state after a round, the clients whose answers were used, the version that was deployed in it."""

    state: State
    report: Report
    used: list[int]
    version: int
    told: dict[str, Any]


def live_round(
    federation: Federation,
    transport: AbstractTransport,
    books: ServerBooks,
    run: str,
    state: State,
    accepted: Any,
    version: int,
) -> Outcome:
    """One round from `state`. Whatever clients do, it ends, and the model stays finite."""
    ready, at = federation.ready, int(state.round)
    cohort, broadcast, chosen = _open(ready, state)
    if at > 0 and not same_model(broadcast.deployed, state.deployed):
        version += 1
    books.keep_model(version, broadcast.deployed, round=at)

    ids = np.asarray(cohort.ids)
    active = np.ones(len(ids), bool) if cohort.active is None else np.asarray(cohort.active)
    steps = np.full(len(ids), broadcast.steps) if cohort.steps is None else np.asarray(cohort.steps)
    arrays, known = flatten(broadcast, "broadcast"), np.asarray(accepted)
    requests, expected = {}, {}
    for client, count in zip(ids[active].tolist(), steps[active].tolist(), strict=True):
        about = {"run": run, "identity": ready.identity, "round": at, "client": client, "version": version}
        about |= {"accepted": int(known[client]), "steps": None if cohort.steps is None else count}
        requests[client] = encode(about, arrays)
        expected[client] = {"run": run, "round": at, "request": digest(requests[client]), "steps": count}

    longest = float(federation.norm) * (1 + float(jnp.sqrt(squared_norm(state.theta))))
    screen = Screen(ready.upload_like, longest, federation.size)

    def read(reply: bytes | None, client: int) -> tuple[Upload, dict[str, Any]]:
        if isinstance(reply, bytes) and _answers_earlier(reply, run, at):
            raise Stale("it answers an earlier round")
        return screen.read(reply, client, expected[client])

    race = federation.algorithm.participation.race
    timeout = float(federation.timeout)
    resend = timeout / 4 if federation.resend is None else float(federation.resend)
    gathered = gather(transport, requests, read, timeout=timeout, resend=resend, enough=race)
    if race is not None:
        cohort = _first(ready, gathered, cohort, race)
    _write_down(books, at, gathered, requests)
    after, report, used = _close(federation, ready, state, cohort, broadcast, chosen, gathered)
    told: dict[str, Any] = {
        "round": at + 1,
        "version": version,
        "asked": len(requests),
        "heard": len(gathered.heard),
        "rejected": len(gathered.rejected),
        "missing": len(requests) - len(gathered.heard) - len(gathered.rejected) if race is None else 0,
        "waited": round(gathered.seconds, 3),
        "worked": round(gathered.worked, 3),
    }
    if not used and requests:
        books.note("quorum", at, heard=len(gathered.heard), needed=federation.quorum)
    reason = _why_not(federation, after, broadcast, told | {"levels": _numbers(report.levels)})
    if reason is not None:
        books.note("not deployed", at, reason=reason)
        told["not_deployed"] = reason
        back = dataclasses.replace(state, theta=broadcast.deployed, deployed=broadcast.deployed, round=state.round + 1)
        after, used = back, []
    counts = {name: jnp.asarray(told[name], ready.setup.weights.dtype) for name in ("rejected", "missing")}
    report = dataclasses.replace(
        report,
        metrics=report.metrics | counts,
        time=jnp.asarray(gathered.seconds, ready.setup.weights.dtype),
    )
    return Outcome(after, report, used, version, told)


def _open(ready: Ready, state: State) -> tuple[Cohort, Broadcast, Any]:
    """The cohort and what it is told. Where the first K to answer are taken, everyone is asked."""
    setup, participation = ready.setup, ready.setup.algorithm.participation
    if participation.race is None:
        return open_one(setup, state, ready.keys)
    asking = eqx.tree_at(lambda s: s.algorithm.participation, setup, participation.before_race())
    cohort, broadcast, chosen = open_one(asking, state, ready.keys)
    return cohort, dataclasses.replace(broadcast, clients=participation.race), chosen


def _first(ready: Ready, gathered: Gathered, cohort: Cohort, k: int) -> Cohort:
    """The first k that answered, with weights p_i N / k; fewer where the time was up before."""
    order = list(gathered.heard)[:k]
    clients = ready.setup.weights.shape[0]
    ids = jnp.asarray(order + [clients] * (k - len(order)), cohort.ids.dtype)
    real = jnp.asarray([True] * len(order) + [False] * (k - len(order)))
    weight = jnp.where(real, jnp.take(ready.setup.weights, ids, mode="clip") * (clients / max(len(order), 1)), 0)
    steps = None if cohort.steps is None else jnp.take(cohort.steps, ids, mode="clip")
    return Cohort(ids, weight, real, steps, gathered.seconds)


def _close(
    federation: Federation, ready: Ready, state: State, cohort: Cohort, broadcast: Broadcast, chosen: Any,
    gathered: Gathered,
) -> tuple[State, Report, list[int]]:  # fmt: skip
    """The uploads as rows of the cohort, and the move that the aggregator makes of them."""
    ids = np.asarray(cohort.ids).tolist()
    active = np.ones(len(ids), bool) if cohort.active is None else np.asarray(cohort.active)
    blank = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), ready.upload_like)
    used = [client for client, here in zip(ids, active, strict=True) if here and client in gathered.heard]
    if len(used) < federation.quorum:
        used = []
    gone = np.asarray([bool(here) and client not in used for client, here in zip(ids, active, strict=True)])
    shares = adds_private_noise(federation.algorithm) and federation.algorithm.channel.grid_noise
    rows = []
    for client, left in zip(ids, gone, strict=True):
        if client in used:
            rows.append(gathered.heard[client])
        else:
            rows.append(_only_noise(federation, broadcast, blank) if left and shares and used else blank)
    upload: Upload = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *rows)
    reached = _reaches(ready.setup.algorithm, broadcast, upload.steps)
    upload = eqx.tree_at(lambda u: u.reach, upload, reached)
    if gone.any() and not (shares and used):
        cohort = leave_out(cohort, jnp.asarray(gone))
    after, report = close_one(ready.setup, state, cohort, broadcast, upload, NOTHING, chosen)
    return after, report, used


@eqx.filter_jit
def _reaches(algorithm: Any, broadcast: Broadcast, steps: Any) -> Any:
    """How far each client's steps reach: worked out here, since it decides how much an update counts for."""
    return jax.vmap(lambda done: reach(algorithm, broadcast, done))(steps)


def _only_noise(federation: Federation, broadcast: Broadcast, blank: Upload) -> Upload:
    """In place of a client that was not heard: its share of the noise, so that the sum is as private as promised."""
    ready, privacy = federation.ready, federation.privacy
    channel = ready.setup.algorithm.channel
    if privacy is not None and privacy.noise == "secure":
        noise = client_secrets(federation.algorithm, ready.start).channel
    else:
        noise = channel.draw(secret_keys(1)[0], ready.start)
    zero = jax.tree.map(jnp.zeros_like, ready.start)
    sent, _ = channel.send(noise, zero, broadcast, channel.init(ready.start))
    return eqx.tree_at(lambda u: u.delta, blank, jax.tree.map(np.asarray, sent))


def _write_down(books: ServerBooks, at: int, gathered: Gathered, requests: dict[int, bytes]) -> None:
    for client, reason in gathered.rejected.items():
        books.note("rejected", at, client=client, reason=reason)
    for client, reason in gathered.failed.items():
        books.note("failed", at, client=client, reason=reason)
    for client in gathered.lost_memory:
        books.note("memory lost", at, client=client, reason="it began anew")
    settled = gathered.heard.keys() | gathered.rejected.keys() | gathered.failed.keys()
    for client in sorted(requests.keys() - settled):
        books.note("silent", at, client=client, reason=f"no answer within {gathered.seconds:.1f} s")


def _why_not(federation: Federation, after: State, broadcast: Broadcast, report: dict[str, Any]) -> str | None:
    """Why the new model may not be deployed, None where it may (or is not going to be)."""
    if not all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(after.theta)):
        return "the new model is not finite"
    follows = federation.algorithm.deploy.next(broadcast.deployed, after.theta, after.round)
    if federation.before_deploy is None or same_model(follows, broadcast.deployed):
        return None
    try:
        verdict = federation.before_deploy(jax.tree.map(np.asarray, after.theta), report)
    except Exception as error:  # a check that breaks down has not said yes
        return f"before_deploy raised {type(error).__name__}: {error}"
    if isinstance(verdict, str):
        return verdict
    return None if verdict is None or bool(verdict) else "before_deploy refused it"


def _answers_earlier(reply: bytes, run: str, at: int) -> bool:
    """Whether this is a late answer to an earlier round: that is not held against the client."""
    try:
        about = decode(reply)[0]
    except ValueError:
        return False
    told = about.get("round")
    return about.get("run") == run and isinstance(told, int) and told < at


def same_model(one: Any, other: Any) -> bool:
    """Whether two models are the same to the bit."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in pairs)


def _numbers(levels: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in levels.items()}

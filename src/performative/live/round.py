"""One round over a network: ask, screen, aggregate, decide whether the new model may be deployed."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from performative._base.noise import GRID
from performative._engine.cohorts import leave_out
from performative._engine.records import Report
from performative._engine.secrets import client_secrets, secret_keys
from performative._engine.steps import close_one, open_one, row_one
from performative._engine.totals import as_total
from performative._engine.training import effective_step
from performative.live.federation import LIMIT, NOTHING, Federation, Ready, adds_private_noise, shares_noise
from performative.live.flight import Flight
from performative.live.gathering import Gathered, gather
from performative.live.memory import secret_keys_of
from performative.live.redeploy import redeploy
from performative.live.retention import models_kept
from performative.live.screen import Screen, length_of
from performative.live.secure.summing import collect_sum, left_factor, sum_weights
from performative.live.server_store import ServerStore, same_model
from performative.live.transport import VACANT, AbstractTransport, Reply
from performative.live.wire import digest, encode, flatten
from performative.types import Broadcast, Cohort, State, Theta, Upload, squared_norm

# The number of characters kept of a client's error.
_LONGEST_REASON = 500
# Default limits of an update's norm, in units of 1 + |theta| and in units of the round's median.
_NORM, _OUT_OF_LINE = 1e6, 1e3


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The state after a round, its row of records, the clients whose answers were used with the rounds in which they
    were asked, and the version deployed in it."""

    state: State
    row: dict[str, Any]
    used: dict[int, int]
    version: int
    told: dict[str, Any]


def live_round(
    federation: Federation,
    transport: AbstractTransport,
    store: ServerStore,
    run: str,
    state: State,
    accepted: Any,
    version: int,
    flight: Flight | None = None,
) -> Outcome:
    """Run one round from `state`. Whatever clients do, it ends, and the model stays finite.

    For an asynchronous server, `flight` contains the clients still training on earlier models: a round is one server
    update, once a buffer is full.
    """
    ready, at = federation.ready, int(state.round)
    cohort, broadcast, chosen = _open(federation, store, run, state)
    before = version
    if at > 0 and not same_model(broadcast.deployed, state.deployed):
        version += 1
    version = store.keep_model(version, broadcast.deployed, round=at)
    if version != before or at == 0:
        store.log_deployed(version, at, models_kept(federation.keep_models, broadcast.deployed))
    weights = _told_weights(ready, state, cohort, broadcast)
    starting = None if flight is None else _starting(federation, store, flight, at)
    training = set(np.asarray(cohort.ids)[np.asarray(cohort.present)].tolist()) if starting is None else starting
    training = training if flight is None else training | flight.requests.keys()
    others = redeploy(federation, transport, store, run, training, broadcast, version)
    requests, expected = _requests(ready, run, cohort, broadcast, accepted, version, weights, starting)
    if flight is not None:
        requests, expected = flight.start(requests, expected, at, float(federation.timeout))
    norm = _NORM if federation.norm is None else float(federation.norm)
    longest = norm * (1 + float(jnp.sqrt(squared_norm(state.theta))))
    first_k, total = ready.setup.algorithm.participation.first_k, None
    if weights is None:
        gathered = _gather(federation, transport, requests, expected, longest, flight, others)
    else:
        uploads = {client: _blank(ready, expected[client]["steps"]) for client in requests}
        gathered, total = collect_sum(federation, transport, run, at, requests, weights, uploads)
        _refuse_long_sum(gathered, total, weights, longest)
    awaited = len(requests) if first_k is None else min(first_k, len(requests))
    missing = max(0, awaited - len(gathered.heard) - (len(gathered.rejected) if first_k is None else 0))
    told: dict[str, Any] = {
        "round": at + 1,
        "version": version,
        "asked": len(requests),
        "heard": len(gathered.heard),
        "rejected": len(gathered.rejected),
        "missing": missing,
        "waited": round(gathered.seconds, 3),
        "worked": round(gathered.worked, 3),
    }
    _write_down(store, at, gathered, requests, silent=missing > 0 and flight is None)
    if first_k is not None:
        cohort = _first(ready, gathered, cohort, first_k, at, flight)
    rounds = {client: at if flight is None else flight.began[client] for client in gathered.heard}
    if flight is not None:
        told |= {"at_work": len(flight.requests) - len(gathered.heard), "oldest": at - min(rounds.values(), default=at)}
        flight.end([*gathered.heard, *gathered.rejected, *gathered.failed])
    no_limit = jnp.asarray(jnp.inf, ready.setup.weights.dtype)  # a round has its own
    after, report, used = _close(federation, ready, state, cohort, broadcast, chosen, gathered, rounds, total)
    if requests and not used:  # nobody, or fewer than the quorum: the round counts, the model is unchanged
        store.note("quorum", at, heard=len(gathered.heard), needed=federation.quorum)
        after, told["idle"] = _stay(state, broadcast, state.theta), _why_idle(gathered, federation.quorum)
    levels = row_one(ready.setup, after, report, True, no_limit)["levels"] if federation.before_deploy else {}
    if (reason := _beyond(ready, after)) is not None:
        store.note("diverged", at, reason=reason)
        after, used, told["diverged"] = _stay(state, broadcast, state.theta), [], reason
    elif (reason := _why_not(federation, store, after, broadcast, told | {"levels": _numbers(levels)})) is not None:
        store.note("not deployed", at, reason=reason)
        after, used, told["not_deployed"] = _stay(state, broadcast, broadcast.deployed), [], reason
        told["idle"] = f"the new model was not deployed: {reason}"
    told["used"] = len(used)
    store.keep_reached(gathered.heard)
    keep = federation.record.theta == "all"
    row, dtype = row_one(ready.setup, after, report, keep, no_limit), ready.setup.weights.dtype
    counts = {name: as_total(jnp.asarray(told[name], jnp.int32), dtype) for name in ("rejected", "missing")}
    row["totals"] |= counts | {"time": as_total(jnp.asarray(gathered.seconds, dtype), dtype)}
    return Outcome(after, row, {client: rounds[client] for client in used}, version, told)


def _starting(federation: Federation, store: ServerStore, flight: Flight, at: int) -> set[int]:
    """Who takes the newest model now; clients that exceeded the timeout are logged, and idle again."""
    for client in flight.give_up():
        store.note("silent", at, client=client, reason=f"no answer within {federation.timeout:g} s")
    words = jax.random.key_data(federation.ready.keys.of_server(jnp.asarray(at, jnp.int32)))
    return set(flight.starting(federation.clients, np.random.default_rng(np.asarray(words).tolist())))


def _gather(
    federation: Federation, transport: AbstractTransport, requests: dict[int, bytes], expected: dict[int, Any],
    longest: float, flight: Flight | None, early: list[Reply],
) -> Gathered:  # fmt: skip
    """Gather individual updates, each screened."""
    screen, timeout = Screen(federation.ready.upload_like, longest, federation.size), float(federation.timeout)
    gathered = gather(
        transport,
        requests,
        lambda reply, client: screen.read(reply, client, expected[client]),
        timeout=timeout,
        resend=timeout / 4 if federation.resend is None else float(federation.resend),
        enough=federation.ready.setup.algorithm.participation.first_k,
        asked_at=None if flight is None else flight.asked,
        arrived=None if flight is None else flight.arrived,
        early=early if flight is not None else (),
    )
    if flight is not None:
        flight.take(gathered)
    if federation.norm is None:
        _refuse_out_of_line(gathered)
    return gathered


def _told_weights(ready: Ready, state: State, cohort: Cohort, broadcast: Broadcast) -> dict[int, float] | None:
    """The weight of each client's update in the sum; None if the server sees individual updates."""
    if ready.secure is None:
        return None
    ids = np.asarray(cohort.ids).tolist()
    steps = np.full(len(ids), broadcast.steps) if cohort.steps is None else np.asarray(cohort.steps)
    blanks = [_blank(ready, count) for count in steps.tolist()]
    upload = _stacked(ready, broadcast, blanks, [int(broadcast.round)] * len(ids))
    weights = np.asarray(sum_weights(ready.setup, state, cohort, upload), np.float64).tolist()
    return dict(zip(ids, weights, strict=True))


def _blank(ready: Ready, steps: int) -> Upload:
    """An upload without an update."""
    blank = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), ready.upload_like)
    return eqx.tree_at(lambda u: u.steps, blank, np.asarray(steps, ready.upload_like.steps.dtype))


def _stacked(ready: Ready, broadcast: Broadcast, rows: list[Upload], rounds: list[int]) -> Upload:
    """Uploads as rows of a cohort, with the effective step size of those rounds."""
    upload: Upload = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *rows)
    reached = _reaches(ready.setup.algorithm, broadcast, upload.steps, jnp.asarray(rounds, broadcast.round.dtype))
    return eqx.tree_at(lambda u: u.effective_step, upload, reached)


def _refuse_long_sum(gathered: Gathered, total: Theta | None, weights: dict[int, float], longest: float) -> None:
    """Screen the mean: with secure aggregation, individual updates cannot be screened."""
    if total is None:
        return
    length = length_of(total) / sum(weights[client] for client in gathered.heard)
    if not length <= longest:
        gathered.heard = {}
        gathered.refusal = f"the mean update has norm {length:.3g}; the limit is {longest:.3g}"


def _refuse_out_of_line(gathered: Gathered) -> None:
    """If three or more answered, reject an update far larger than most: it would dominate a mean."""
    lengths = {client: length_of(upload.delta) for client, upload in gathered.heard.items()}
    if len(lengths) < 3:
        return
    most = _OUT_OF_LINE * float(np.median(list(lengths.values())))
    for client, length in lengths.items():
        if length > most > 0:
            del gathered.heard[client]
            gathered.rejected[client] = (
                f"the update has norm {length:.3g}, more than {_OUT_OF_LINE:g} times the median of this round; set "
                "another limit with norm="
            )


def _requests(
    ready: Ready,
    run: str,
    cohort: Cohort,
    broadcast: Broadcast,
    accepted: Any,
    version: int,
    weights: dict[int, float] | None = None,
    only: set[int] | None = None,
) -> tuple[dict[int, bytes], dict[int, dict[str, Any]]]:
    """Each client's request, and what its answer must contain; `only` these of the cohort, None for all."""
    ids = np.asarray(cohort.ids)
    active = np.ones(len(ids), bool) if cohort.active is None else np.asarray(cohort.active)
    active = active if only is None else active & np.isin(ids, list(only))
    steps = np.full(len(ids), broadcast.steps) if cohort.steps is None else np.asarray(cohort.steps)
    arrays, known, at = flatten(broadcast, "broadcast"), np.asarray(accepted), int(broadcast.round)
    requests, expected = {}, {}
    for client, count in zip(ids[active].tolist(), steps[active].tolist(), strict=True):
        about = {"run": run, "identity": ready.identity, "round": at, "client": client, "version": version}
        about |= {"accepted": int(known[client]), "steps": None if cohort.steps is None else count}
        about |= {} if weights is None else {"step": "keys", "weight": weights[client]}
        requests[client] = encode(about, arrays)
        expected[client] = {"run": run, "round": at, "request": digest(requests[client]), "steps": count}
    return requests, expected


def _stay(state: State, broadcast: Broadcast, theta: Theta) -> State:
    """End the round with nothing changed but the clock."""
    return dataclasses.replace(state, theta=theta, deployed=broadcast.deployed, round=state.round + 1)


def _open(federation: Federation, store: ServerStore, run: str, state: State) -> tuple[Cohort, Broadcast, Any]:
    """The cohort and its broadcast. If the first K to answer are used, everyone is asked.

    With private noise, the sampled cohort must be as hard to guess as the noise: the key is the server's secret.
    """
    ready, keys = federation.ready, federation.ready.keys
    if adds_private_noise(federation.algorithm):
        keys = dataclasses.replace(keys, select=secret_keys_of(store.folder, run).select)
    setup, participation = ready.setup, ready.setup.algorithm.participation
    if participation.first_k is None:
        return open_one(setup, state, keys)
    asking = eqx.tree_at(lambda s: s.algorithm.participation, setup, participation.invited())
    cohort, broadcast, chosen = open_one(asking, state, keys)
    return cohort, dataclasses.replace(broadcast, clients=participation.first_k), chosen


def _first(
    ready: Ready, gathered: Gathered, cohort: Cohort, k: int, at: int = 0, flight: Flight | None = None
) -> Cohort:
    """The first k that answered, with the weights of the participation part; fewer if the time ran out.

    An asynchronous server also weights them by their age, and drops those that are too old.
    """
    order = list(gathered.heard)[:k]
    clients = ready.setup.weights.shape[0]
    ids = jnp.asarray(order + [clients] * (k - len(order)), cohort.ids.dtype)
    real = jnp.asarray([True] * len(order) + [False] * (k - len(order)))
    weigh = ready.setup.algorithm.participation.first_weights
    weight = jnp.where(real, weigh(ready.setup.weights, ids, len(order)), 0)
    steps = None if cohort.steps is None else jnp.take(cohort.steps, ids, mode="clip")
    if flight is None:
        return Cohort(ids, weight, real, steps, gathered.seconds)
    age = jnp.asarray(flight.ages(order, at) + [0] * (k - len(order)), jnp.int32)
    real &= age <= flight.rule.oldest(clients)
    weight = jnp.where(real, weight * flight.rule.discount(age).astype(weight.dtype), 0)
    return Cohort(jnp.where(real, ids, clients), weight, real, steps, gathered.seconds, age)


def _close(
    federation: Federation, ready: Ready, state: State, cohort: Cohort, broadcast: Broadcast, chosen: Any,
    gathered: Gathered, rounds: dict[int, int], total: Theta | None = None,
) -> tuple[State, Report, list[int]]:  # fmt: skip
    """Aggregate the uploads, as rows of the cohort, or their sum; `rounds` is when each client was asked."""
    ids = np.asarray(cohort.ids).tolist()
    active = np.ones(len(ids), bool) if cohort.active is None else np.asarray(cohort.active)
    blank = _blank(ready, 0)
    used = {client for client, here in zip(ids, active, strict=True) if here and client in gathered.heard}
    if len(used) < federation.quorum:
        used = set()
    gone = np.asarray([bool(here) and client not in used for client, here in zip(ids, active, strict=True)])
    rows = [gathered.heard[client] if client in used else blank for client in ids]
    upload = _stacked(ready, broadcast, rows, [rounds.get(client, int(broadcast.round)) for client in ids])
    total = total if used else None
    if total is not None:
        factor = left_factor(ready.setup, state, cohort, gone, upload)
        total = jax.tree.map(lambda leaf, like: jnp.asarray(factor * leaf, like.dtype), total, ready.upload_like.delta)
    if gone.any():
        share = 1 - len(used) / len(ids)
        cohort = leave_out(cohort, jnp.asarray(gone))
        if used and shares_noise(federation.algorithm):
            row, noise = _missing_noise(federation, cohort, share)
            if total is None:
                more = jax.tree.map(lambda leaf, one: leaf.at[row].add(one.astype(leaf.dtype)), upload.delta, noise)
                upload = eqx.tree_at(lambda u: u.delta, upload, more)
            else:
                weight = float(np.asarray(cohort.weight)[row])
                total = jax.tree.map(lambda leaf, one: leaf + (weight * one).astype(leaf.dtype), total, noise)
    after, report = close_one(ready.setup, state, cohort, broadcast, upload, NOTHING, chosen, total)
    return after, report, sorted(used)


@eqx.filter_jit
def _reaches(algorithm: Any, broadcast: Broadcast, steps: Any, rounds: Any) -> Any:
    """Each client's effective step size: computed on the server, since it determines the weight of an update."""

    def one(done: Any, round: Any) -> Any:
        return effective_step(algorithm, dataclasses.replace(broadcast, round=round), done)

    return jax.vmap(one)(steps, rounds)


def _missing_noise(federation: Federation, cohort: Cohort, share: float) -> tuple[int, Theta]:
    """The noise of missing clients, so the sum is as private as guaranteed; and the row to add it to.

        sum_i a_i n_i has variance (s c a)^2 m / K of the required (s c a)^2:   add N(0, (s c a)^2 (1 - m / K))

    with m of K clients heard, a the largest weight, s the noise multiplier, c the clip. It is added to the row of that
    weight, which adds a times it to the mean. A server that sees only sums has seen this one without it: the guarantee
    against that server assumes the minimum number of clients in a sum.
    """
    ready, privacy = federation.ready, federation.privacy
    channel: Any = federation.algorithm.channel
    row = int(np.argmax(np.asarray(cohort.weight)))
    scale = float(channel.noise_multiplier * channel.clip * np.sqrt(share))
    if privacy is not None and privacy.noise == "secure":
        drawn, scale = client_secrets(federation.algorithm, ready.start).channel, scale / GRID
    else:
        drawn = channel.draw(secret_keys(1)[0], ready.shared)
    like = ready.upload_like.delta
    return row, jax.tree.map(lambda leaf, noise: scale * noise.astype(leaf.dtype), like, drawn)


def _write_down(store: ServerStore, at: int, gathered: Gathered, requests: dict[int, bytes], silent: bool) -> None:
    """Log what went wrong, one line each; `silent`: whether the server waited for silent clients."""
    for what, reasons in (("rejected", gathered.rejected), ("failed", gathered.failed)):
        for client, reason in reasons.items():
            store.note(what, at, client=client, reason=reason[:_LONGEST_REASON])
    for client in gathered.lost_memory:
        store.note("memory lost", at, client=client, reason="it was reset")
    if gathered.refusal:
        store.note("sum refused", at, reason=gathered.refusal)
        return
    settled = gathered.heard.keys() | gathered.rejected.keys() | gathered.failed.keys()
    for client in sorted(requests.keys() - settled) if silent else []:
        store.note("silent", at, client=client, reason=f"no answer within {gathered.seconds:.1f} s")


def _why_idle(gathered: Gathered, quorum: int) -> str:
    """Why no answer of a round was used: the first client's reason, or that all were silent; vacant numbers last."""
    if gathered.refusal:
        first = [f"; client {client}: {reason}" for client, reason in sorted(gathered.failed.items())[:1]]
        return gathered.refusal + "".join(first)[:_LONGEST_REASON]
    said = f"only {len(gathered.heard)} of the {quorum} answers required by quorum= arrived; " if gathered.heard else ""
    for what, reasons in (("failed", gathered.failed), ("was rejected", gathered.rejected)):
        for client, reason in sorted(reasons.items()):
            if reason != VACANT:
                return f"{said}client {client} {what}: {reason[:_LONGEST_REASON]}"
    vacant = [f"; client {client}: {VACANT}" for client, reason in sorted(gathered.failed.items()) if reason == VACANT]
    return f"{said}no answer within {gathered.seconds:.1f} s" + "".join(vacant[:1])


def _beyond(ready: Ready, after: State) -> str | None:
    """Why the new model cannot be used at all, None if it can."""
    length = float(jnp.sqrt(squared_norm(after.theta)))
    most = LIMIT * (1 + float(jnp.sqrt(squared_norm(ready.shared))))
    return None if length <= most else f"the new model has norm {length:.3g}; the limit is {most:.3g}"


def _why_not(
    federation: Federation, store: ServerStore, after: State, broadcast: Broadcast, report: dict[str, Any]
) -> str | None:
    """Why the new model may not be deployed, None if it may (or will not be). An approval is logged."""
    follows = federation.algorithm.deploy.next(broadcast.deployed, after.theta, after.round)
    if federation.before_deploy is None or same_model(follows, broadcast.deployed):
        return None
    try:
        verdict = federation.before_deploy(jax.tree.map(np.asarray, after.theta), report)
        allowed = verdict is None or (not isinstance(verdict, str) and bool(verdict))
    except Exception as error:  # a check that raises has not approved
        return f"before_deploy raised {type(error).__name__}: {error}"
    if allowed:
        store.journal.write("approved", round=int(after.round), model=digest(encode({}, flatten(after.theta, "theta"))))
        return None
    return verdict if isinstance(verdict, str) else "before_deploy rejected it"


def _numbers(levels: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in levels.items()}

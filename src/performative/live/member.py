"""A client of a live federation: it handles requests with `client_round`, keeps its memory, and answers."""

import dataclasses
import os
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from performative._base.files import in_turn
from performative._engine.client import init_client
from performative._engine.keys import RunKeys
from performative._engine.prepare import on_device
from performative._engine.secrets import client_secrets
from performative._engine.setup import Setup
from performative._engine.steps import client_slice, met_one, one_client
from performative.live.budget import OwnLedger
from performative.live.federation import LIMIT, Federation, Ready, adds_private_noise, has_numbers
from performative.live.memory import Answered, MemoryStore, own_version, recall, secret_keys_of
from performative.live.secure.stages import Stages
from performative.live.sources.deployment import Deployed
from performative.live.sources.population import deploy_to, people_of
from performative.live.sources.tables import open_source
from performative.live.telling import RequestRefused, Sayable, log_failure
from performative.live.wire import Malformed, decode, digest, encode, flatten, unflatten
from performative.types import Broadcast, ClientMemory, Theta, squared_norm


class OwnModelDiverged(Sayable, ArithmeticError):
    """Only the client can detect it: what it sends may be valid."""

    sentence = "the client's own model has diverged; its memory stays at its last valid round"


@eqx.filter_jit
def first_memory(setup: Setup, theta: Theta, row: Any) -> ClientMemory:
    """A client's memory before its first round; theta is the server's model at that time."""
    mine = client_slice(setup.problem.population, row)
    return init_client(setup.problem, setup.algorithm, mine, theta, client=row)


class Member:
    """Client number `client`, with its memory in `folder` and, if the federation has a [data], its table in `data`.

    `answer` may be called twice with the same request: the second call returns the same bytes. The memory is updated
    only once the server confirms that it used an answer.
    """

    def __init__(
        self,
        federation: Federation,
        client: int,
        folder: str | os.PathLike[str],
        data: str | os.PathLike[str] | None = None,
    ):
        if not 0 <= client < federation.clients:
            raise ValueError(f"client must lie in 0..{federation.clients - 1}; got {client}.")
        self.federation, self.client = federation, client
        self.store = MemoryStore(folder)
        self.data = data
        self.source = open_source(federation.source, client, data)
        self.private = adds_private_noise(federation.algorithm)
        self.stages = None if federation.secure_settings is None else Stages(federation, client, self.store.folder)
        self.ledger: OwnLedger | None = None
        if federation.privacy is not None:
            parts = federation.privacy, federation.problem, federation.algorithm
            self.ledger = OwnLedger(
                self.store.folder, *parts, federation.source is not None, federation.secure_threshold
            )

    def answer(self, request: bytes) -> bytes:
        """Do one round's work: takes a request of the server, returns an update. Errors go to the client's log."""
        try:
            return self._answer(request)
        except Exception as error:
            log_failure(self.store.folder, error)
            raise

    def _answer(self, request: bytes) -> bytes:
        with self.federation.precision(), in_turn(self.store.folder):  # one answer at a time
            ready = self.federation.ready
            asked, _ = self._head(ready, request)
            if asked.get("step") == "deploy":
                return self._redeploy(ready, request)
            if asked.get("step") == "audit":
                return self._sum_logs(asked, request)
            if self.stages is None:
                return self._train(ready, request)
            return self.stages.answer(ready, asked, request, lambda first: self._train(ready, first))

    def _redeploy(self, ready: Ready, request: bytes) -> bytes:
        """After a rollback: publish the deployed model, and do nothing else."""
        asked, broadcast = self._read(ready, request)
        if self.source is not None:
            first = first_memory(ready.setup, ready.shared, jnp.asarray(self.client, jnp.int32))
            last = self.store.load(ready.memory_like, asked["run"])
            memory, _ = recall(last, asked["accepted"], first)
            deploy_to(self.source, self._deployed(ready, asked, broadcast, jax.tree.map(jnp.asarray, memory)))
        about = {"run": asked["run"], "round": asked["round"], "client": self.client, "step": "deploy"}
        return encode(about | {"request": digest(request)}, {})

    def _sum_logs(self, asked: dict[str, Any], request: bytes) -> bytes:
        """For a federated audit: sums of this client's logs, as set by its own copy of [audit], and no rows."""
        if self.federation.audit is None:
            raise RequestRefused("this client's federation.toml has no [audit]; use the same app folder for both.")
        name, memory = self.federation.member_name(self.client), self.store.folder
        about, arrays = self.federation.audit.answer(name, self.data, memory, asked)
        about |= {"run": asked["run"], "client": self.client, "step": "audit", "request": digest(request)}
        return encode(about, arrays)

    def _train(self, ready: Ready, request: bytes) -> bytes:
        """Do the round's work and store the answer; a repeated request returns the stored answer."""
        asked, broadcast = self._read(ready, request)
        mark, began = digest(request), time.monotonic()
        last = self.store.load(ready.memory_like, asked["run"])
        if last is not None and last.round >= asked["round"]:
            if last.round == asked["round"] and last.request == mark:
                return last.reply
            self._check_once(last, asked)
        first = first_memory(ready.setup, ready.shared, jnp.asarray(self.client, jnp.int32))
        memory, lost = recall(last, asked["accepted"], first)
        if last is not None and self.private:
            # Used rows count as used, whether or not the server accepted the answer.
            memory = eqx.tree_at(lambda m: m.batch, memory, last.after.batch, is_leaf=lambda leaf: leaf is None)
        # Before the work: an answer interrupted by a kill is still charged.
        charged = 0 if self.ledger is None else self.ledger.charge(self.store.charged())
        upload, after = self._work(ready, asked, broadcast, jax.tree.map(jnp.asarray, memory), mark)
        self._check_own(ready, after)
        # Real rows may use wider integer types than their placeholders.
        upload = jax.tree.map(lambda leaf, like: np.asarray(leaf, like.dtype), upload, ready.upload_like)
        about = {
            "run": asked["run"],
            "round": asked["round"],
            "client": self.client,
            "request": mark,
            "lost_memory": lost,
            "seconds": round(time.monotonic() - began, 4),
        }
        reply = encode(about, flatten(upload, "upload"))
        # Before it is sent: what was sent is never computed again.
        answered = Answered(asked["run"], asked["round"], asked["accepted"], mark, memory, after, reply, charged)
        self.store.save(answered)
        return reply

    def _check_own(self, ready: Ready, after: ClientMemory) -> None:
        """Raise if the client's personal model is non-finite or far too large."""
        if has_numbers(after.own):
            length = float(jnp.sqrt(squared_norm(after.own)))
            most = LIMIT * (1 + float(jnp.sqrt(squared_norm(ready.start))))
            if not length <= most:
                raise OwnModelDiverged(f"this client's own model has norm {length:.3g}; the limit is {most:.3g}.")

    def _check_once(self, last: Answered, asked: dict[str, Any]) -> None:
        """Refuse a stale request, and a second one for the same round if answers are private."""
        if last.round > asked["round"]:
            raise RequestRefused(f"the request is stale: this client has since answered round {last.round}.")
        if self.private or self.stages is not None:
            raise RequestRefused(
                f"this client has answered another request for round {last.round}; with private noise or secure "
                "aggregation, a round is answered only once."
            )

    def _read(self, ready: Ready, request: bytes) -> tuple[dict[str, Any], Broadcast]:
        asked, arrays = self._head(ready, request)
        self._check_steps(ready, asked.get("steps"))
        return asked, unflatten(ready.asked_like[1], arrays, "broadcast")

    def _check_steps(self, ready: Ready, steps: Any) -> None:
        """Refuse a number of local steps that the method never asks of this client. A server that had all clients but
        one do none would see that one's update in the sum."""
        algorithm = ready.setup.algorithm
        if ready.asked_like[0].steps is None:
            if steps is not None:
                raise RequestRefused("the request sets the number of local steps, which this method does not vary.")
            return
        law = algorithm.participation.step_law(self.federation.clients, algorithm.steps)
        possible = np.ones(algorithm.steps, bool) if law is None else law[self.client] > 0
        known = (np.flatnonzero(possible) + 1).tolist()
        if isinstance(steps, bool) or not isinstance(steps, int) or steps not in known:
            raise RequestRefused(
                f"the request asks for {str(steps)[:20]} local steps; this method asks this client for {known[0]} to "
                f"{known[-1]}."
            )

    def _head(self, ready: Ready, request: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The checked header of a request, and its arrays, unchecked."""
        try:
            asked, arrays = decode(request)
        except Malformed as error:
            raise RequestRefused(f"the request cannot be read: {error}") from error
        kinds = {"run": str, "identity": str, "round": int, "client": int, "accepted": int, "version": int}
        for name, kind in kinds.items():
            if not isinstance(asked.get(name), kind):
                raise RequestRefused(f"the request has no {name}")
        if asked["client"] != self.client:
            raise RequestRefused(f"the request is for client {asked['client']}; this is client {self.client}.")
        if asked["identity"] != ready.identity:
            raise RequestRefused(
                "the server's problem, algorithm, start, seed, precision or privacy differs from this client's files; "
                "use the same app folder for both."
            )
        return asked, arrays

    def _work(self, ready: Ready, asked: dict[str, Any], broadcast: Broadcast, memory: PyTree, mark: str) -> Any:
        broadcast = jax.tree.map(jnp.asarray, broadcast)
        setup, row = ready.setup, jnp.asarray(self.client, jnp.int32)
        if self.source is not None:
            deployed = self._deployed(ready, asked, broadcast, memory)
            placed = on_device(people_of(self.source, deployed, self.federation.problem), setup.weights.dtype)
            problem = dataclasses.replace(setup.problem, population=placed, weights=None)
            setup, row = dataclasses.replace(setup, problem=problem), jnp.zeros((), jnp.int32)
        steps = None if asked.get("steps") is None else jnp.asarray(asked["steps"], jnp.int32)
        privacy, secrets = self.federation.privacy, None
        if privacy is not None and privacy.noise == "secure":
            secrets = client_secrets(self.federation.algorithm, ready.start)
        keys, client = self._keys(ready, asked["run"], mark), jnp.asarray(self.client, jnp.int32)
        return one_client(setup, broadcast, memory, keys, client, steps, secrets, row)

    def _deployed(self, ready: Ready, asked: dict[str, Any], broadcast: Broadcast, memory: PyTree) -> Deployed:
        """The model this client's people face. A personal model has its own version number: the server's do not
        distinguish them."""
        version, at = asked["version"], asked["round"]
        if ready.setup.algorithm.sharing.is_one:
            return Deployed(version, jax.tree.map(np.asarray, broadcast.deployed), at)
        met = met_one(ready.setup, broadcast, memory, jnp.asarray(self.client, jnp.int32))
        theta = jax.tree.map(np.asarray, met)
        print_of = Deployed(version, theta, at).fingerprint
        return Deployed(own_version(self.store.folder, print_of, version), theta, at)

    def _keys(self, ready: Ready, run: str, mark: str) -> RunKeys:
        """The run's keys, as in `pf.run`; with private noise, keys that only this client knows.

        Those differ between requests: the difference of two answers never cancels the noise. The key that orders the
        rows of an epoch is the same throughout the run.
        """
        if not self.private:
            return ready.keys
        keys = secret_keys_of(self.store.folder, run, mark)
        return dataclasses.replace(keys, standing=secret_keys_of(self.store.folder, run).standing)

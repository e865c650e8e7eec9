"""The server's steps over a transport: clients that answer one continue to the next.

The first step, in which clients train, may take half of a round's time, each of the others an equal part of the rest:
a client that is silent for that long has dropped out.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from performative.live.gathering import Gathered, gather
from performative.live.screen import Refused, Stale
from performative.live.secure.assembly import Assembly, Unrecoverable
from performative.live.secure.keys import is_agreement_key
from performative.live.secure.participant import STEPS
from performative.live.secure.ring import from_ring, weight_units
from performative.live.secure.session import Session
from performative.live.secure.stages import pack_advert, pack_all, unpack, unpack_advert, unpack_all
from performative.live.transport import AbstractTransport
from performative.live.wire import Malformed, decode, digest, encode

# The share of a round's time for the first step.
_FIRST = 0.5
# Room for the keys and shares of one client, besides the vector.
_HEAD = 1 << 20

Take = Callable[[int, dict[str, Any], dict[str, np.ndarray]], Any]


@dataclasses.dataclass
class Collected:
    """The result of a round: the sum of weighted updates in float64 and its clients; None and nobody if it failed, and
    `gathered.refusal` says why."""

    gathered: Gathered
    total: np.ndarray | None
    survivors: list[int]


class Collector:
    """One session. `requests` are the first requests, which include training; `weights` are sent to clients."""

    def __init__(
        self,
        transport: AbstractTransport,
        session: Session,
        requests: Mapping[int, bytes],
        weights: Mapping[int, float],
        timeout: float,
        resend: float,
    ):
        self.transport, self.session, self.weights = transport, session, weights
        self.timeout, self.resend = timeout, resend
        self.assembly, self.requests = Assembly(session), dict(requests)
        self.about = {client: decode(request)[0] for client, request in requests.items()}
        self.found = Gathered()

    def collect(self) -> Collected:
        """Run all five steps, or stop when too few clients answer."""
        assembly = self.assembly
        try:
            adverts = self._ask("keys", self.requests, self._take_keys)
            assembly.adverts = adverts
            keys = [pack_advert(advert) for _, advert in sorted(adverts.items())]
            sealed = self._ask("shares", {i: {"keys": keys} for i in adverts}, self._take_shares)
            assembly.sealed = sealed
            self._ask("masked", {i: {"shares": pack_all(assembly.sealed_for(i))} for i in sealed}, self._take_masked)
            survivors = sorted(assembly.survivors)
            signed = self._ask("consent", {i: {"survivors": survivors} for i in survivors}, self._take_signature)
            proof = {"signatures": pack_all(signed)}
            revealed = self._ask(
                "reveal", dict.fromkeys(signed, proof), lambda i, about, _: unpack_all(about["shares"])
            )
            total, units = from_ring(assembly.unmask(revealed), self.session.step, self.session.clients)
            expected = sum(int(weight_units(self.weights[client])) for client in survivors)
            if units != expected:
                raise Unrecoverable(
                    f"secure aggregation: the weights sum to {units} units instead of {expected}: a client sent a "
                    "wrong share or vector"
                )
        except Unrecoverable as error:
            self.found.refusal = str(error)
            return Collected(self.found, None, [])
        return Collected(self.found, total, survivors)

    def _ask(self, step: str, asked: Mapping[int, Any], take: Take) -> dict[int, Any]:
        """Each client's answer to a step; missing ones are recorded. Fewer than t end the session."""
        requests = {
            client: about if isinstance(about, bytes) else encode(self._say(client, step) | about, {})
            for client, about in asked.items()
        }
        marks = {client: digest(request) for client, request in requests.items()}

        def read(reply: bytes, client: int) -> tuple[Any, dict[str, Any]]:
            return self._read(reply, client, step, marks[client], take)

        left, steps = self.timeout - self.found.seconds, len(STEPS) - STEPS.index(step)
        seconds = _FIRST * self.timeout if step == STEPS[0] else max(0.0, left) / steps
        found = gather(self.transport, requests, read, timeout=seconds, resend=min(self.resend, seconds))
        self.found.seconds += found.seconds
        self.found.worked = max(self.found.worked, found.worked)
        self.found.lost_memory += found.lost_memory
        self.found.rejected |= {i: f"step {step}: {reason}" for i, reason in found.rejected.items()}
        self.found.failed |= {i: f"step {step}: {reason}" for i, reason in found.failed.items()}
        if step != STEPS[0]:
            silent = requests.keys() - found.heard.keys() - found.rejected.keys() - found.failed.keys()
            reason = f"step {step}: it dropped out, no answer within {found.seconds:.1f} s"
            self.found.failed |= dict.fromkeys(sorted(silent), reason)
        self.assembly.enough(len(found.heard), f"answers to the step {step!r}")
        return dict(found.heard)

    def _say(self, client: int, step: str) -> dict[str, Any]:
        """The header of a request: that of the first, without the model."""
        return self.about[client] | {"step": step}

    def _read(self, reply: bytes, client: int, step: str, mark: str, take: Take) -> tuple[Any, dict[str, Any]]:
        if not isinstance(reply, bytes) or len(reply) > 8 * self.session.length + _HEAD:
            raise Refused("the answer does not contain bytes, or more than an honest one")
        try:
            about, arrays = decode(reply)
            if about.get("run") == self.session.run and self._is_earlier(about, step):
                raise Stale("it answers an earlier step")
            expected = {"run": self.session.run, "round": self.session.round, "client": client, "request": mark}
            for name, value in expected.items():
                if about.get(name) != value:
                    raise Refused(f"it answers another request: {name} is {str(about.get(name))[:40]!r}")
            return take(client, about, arrays), about
        except (Malformed, KeyError) as error:
            raise Refused(f"it cannot be read: {error}") from error

    def _is_earlier(self, about: dict[str, Any], step: str) -> bool:
        told, known = about.get("round"), about.get("step")
        if not isinstance(told, int) or told > self.session.round:
            return False
        return told < self.session.round or (known in STEPS and STEPS.index(known) < STEPS.index(step))

    def _take_keys(self, client: int, about: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
        advert = unpack_advert(about["keys"])
        if advert.client != client or advert.weight != self.weights[client]:
            raise Refused("its keys belong to another client, or to another weight")
        if not is_agreement_key(advert.sealing) or not is_agreement_key(advert.masking):
            raise Refused("its keys are not valid keys")
        return advert

    def _take_shares(self, client: int, about: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
        shares = unpack_all(about["shares"])
        if shares.keys() != self.assembly.adverts.keys():
            raise Refused("its shares are not for the clients that sent keys")
        return shares

    def _take_masked(self, client: int, about: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
        masked = arrays.get("masked")
        if masked is None or masked.shape != (self.session.length,) or masked.dtype != np.uint64:
            raise Refused(f"the masked vector must be {self.session.length} uint64")
        self.assembly.add(client, masked)
        return True

    def _take_signature(self, client: int, about: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
        return unpack(about["signature"])

"""A client's side of secure aggregation.

    y_u = x_u + PRG(b_u) + sum over v of U2:  +PRG(s_uv) for u < v,  -PRG(s_uv) for u > v        (modulo 2^64)

Five steps, each done once: keys, shares, masked vector, consent, revealed shares. Bonawitz et al. 2017, Figure 4 with
the signatures of the active setting: a client reveals shares only for a set U3 of survivors that at least t clients
have signed, and for each client either a share of its seed b (it survived) or of its masking key (it did not), never
both. With 2 t > K no two sets can be signed by t clients each if fewer than 2 t - K of them collude with the server.
"""

import base64
import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from performative.live.secure import keys, shamir
from performative.live.secure.masks import add_mask
from performative.live.secure.session import Advert, Breach, Session, pair_key, seed_key, survivors_statement

STEPS = ("keys", "shares", "masked", "consent", "reveal")


@dataclasses.dataclass
class Participant:
    """One client in one session. `done` is the last completed step; the whole state can be saved and restored."""

    session: Session
    client: int
    weight: float
    sealing: bytes = dataclasses.field(default_factory=keys.new_agreement_key)
    masking: bytes = dataclasses.field(default_factory=keys.new_agreement_key)
    seed: bytes = dataclasses.field(default_factory=lambda: os.urandom(keys.KEY))
    done: int = -1
    adverts: dict[int, Advert] = dataclasses.field(default_factory=dict)
    sealed: dict[int, bytes] = dataclasses.field(default_factory=dict)
    survivors: tuple[int, ...] = ()

    def advertise(self, identity: bytes) -> Advert:
        """Step 0: public keys, signed."""
        self._step("keys")
        public = keys.agreement_public(self.sealing), keys.agreement_public(self.masking)
        return Advert(self.client, *public, self.weight).signed(self.session, identity)

    def share(self, adverts: Mapping[int, Advert], roster: Mapping[int, bytes]) -> dict[int, bytes]:
        """Step 1: shares of masking key and seed, sealed for each of U1. `roster` contains everyone's identity."""
        self._step("shares")
        self._check_group(adverts.keys(), "keys")
        self._check_adverts(adverts, roster)
        self.adverts = dict(adverts)
        parts = [shamir.split(secret, sorted(adverts), self.session.threshold) for secret in (self.masking, self.seed)]
        return {
            other: keys.seal(self._channel(self.client, other), parts[0][other] + parts[1][other], b"")
            for other in sorted(adverts)
        }

    def mask(self, sealed: Mapping[int, bytes], values: np.ndarray) -> np.ndarray:
        """Step 2: the masked vector. `sealed` contains what each of U2 sealed for this client."""
        self._step("masked")
        if values.shape != (self.session.length,) or values.dtype != np.uint64:
            raise ValueError(f"values must be {self.session.length} uint64; got {values.dtype}{list(values.shape)}.")
        self._check_group(sealed.keys(), "shares")
        if not sealed.keys() <= self.adverts.keys():
            raise Breach("received shares of a client that sent no keys.")
        self.sealed = dict(sealed)
        for other in sealed:
            self._opened(other)
        total = values.copy()
        add_mask(total, seed_key(self.session, self.seed, self.client), 1)
        for other in sorted(sealed.keys() - {self.client}):
            key = pair_key(self.session, self.masking, self.client, other, self.adverts[other].masking)
            add_mask(total, key, 1 if self.client < other else -1)
        return total

    def consent(self, survivors: tuple[int, ...], identity: bytes) -> bytes:
        """Step 3: sign U3, the clients whose masked vectors the server claims to have."""
        self._step("consent")
        self._check_group(survivors, "vectors")
        if len(set(survivors)) != len(survivors) or not set(survivors) <= self.sealed.keys():
            raise Breach("the server names survivors that sent no shares, or one of them twice.")
        self.survivors = tuple(sorted(survivors))
        return keys.sign(identity, survivors_statement(self.session, self.survivors, self.adverts))

    def reveal(self, consents: Mapping[int, bytes], roster: Mapping[int, bytes]) -> dict[int, bytes]:
        """Step 4: one share for each of U2: of the seed if it survived, of the masking key otherwise."""
        self._step("reveal")
        self._check_group(consents.keys(), "signatures")
        if not consents.keys() <= set(self.survivors):
            raise Breach("a client that did not survive has signed the list of survivors.")
        statement = survivors_statement(self.session, self.survivors, self.adverts)
        for other, signature in consents.items():
            if other not in roster or not keys.is_signed(roster[other], signature, statement):
                raise Breach(
                    f"client {other} has not signed the survivors sent to this client: the server sends different "
                    "lists to different clients, or forges signatures."
                )
        return {other: self._opened(other)[1 if other in self.survivors else 0] for other in sorted(self.sealed)}

    def _step(self, name: str) -> None:
        """Enforce that steps come once and in order: a second answer to a different request would reveal the masks."""
        step = STEPS.index(name)
        if step != self.done + 1:
            after = "nothing" if self.done < 0 else STEPS[self.done]
            raise Breach(f"the step {name!r} was requested after {after!r}: each comes once, in order.")
        self.done = step

    def _check_group(self, group: Any, what: str) -> None:
        """A sum of too few would expose them; with more than K, two sets could each be signed by t clients."""
        t, K = self.session.threshold, self.session.clients
        if self.client not in group:
            raise Breach(f"the server omits this client's own {what}.")
        if not t <= len(group) <= K:
            raise Breach(f"received {what} of {len(group)} clients; only the sum of {t} to {K} may be revealed.")

    def _check_adverts(self, adverts: Mapping[int, Advert], roster: Mapping[int, bytes]) -> None:
        for client, advert in adverts.items():
            if client not in roster:
                raise Breach(f"client {client} is not on this client's roster.")
            if not keys.is_agreement_key(advert.sealing) or not keys.is_agreement_key(advert.masking):
                raise Breach(f"the keys of client {client} are not valid keys.")
            if advert.client != client or not keys.is_signed(
                roster[client], advert.signature, advert.statement(self.session)
            ):
                raise Breach(f"the keys of client {client} are not signed by it for this round.")
        mine = adverts[self.client]
        if (mine.sealing, mine.masking) != tuple(keys.agreement_public(k) for k in (self.sealing, self.masking)):
            raise Breach("the server returned different keys than this client sent.")
        for name in ("sealing", "masking"):
            if len({getattr(advert, name) for advert in adverts.values()}) < len(adverts):
                raise Breach("two clients have the same keys.")
        weights = [advert.weight for advert in adverts.values()]
        if not 0 < max(weights) <= self.session.weight_ratio * min(weights):
            raise Breach(
                f"client weights range from {min(weights)} to {max(weights)}; a ratio of at most "
                f"{self.session.weight_ratio:.6g} is allowed, or the sum would be one client's update."
            )

    def _channel(self, sender: int, receiver: int) -> bytes:
        """The key with which one client seals its shares for another; its own shares stay local."""
        about = self.session.about("shares", sender, receiver)
        other = receiver if sender == self.client else sender
        if other == self.client:
            return keys.derive(self.sealing, about)
        return keys.agree(self.sealing, self.adverts[other].sealing, about)

    def _opened(self, sender: int) -> tuple[bytes, bytes]:
        """A client's shares of its masking key and of its seed."""
        try:
            both = keys.unseal(self._channel(sender, self.client), self.sealed[sender], b"")
        except ValueError:
            raise Breach(f"the shares of client {sender} were altered, or belong to another round.") from None
        if len(both) != 2 * shamir.SHARE:
            raise Breach(f"the shares of client {sender} have {len(both)} bytes.")
        return both[: shamir.SHARE], both[shamir.SHARE :]

    def to_bytes(self) -> bytes:
        """The whole state, including secrets."""
        return json.dumps(_packed(dataclasses.asdict(self))).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> "Participant":
        told = json.loads(content)
        held = {name: _unpacked(value) for name, value in told.items()}
        adverts = {int(client): Advert(**advert) for client, advert in held.pop("adverts").items()}
        sealed = {int(client): value for client, value in held.pop("sealed").items()}
        session, survivors = Session(**held.pop("session")), tuple(held.pop("survivors"))
        return cls(session, adverts=adverts, sealed=sealed, survivors=survivors, **held)


def _packed(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {str(name): _packed(entry) for name, entry in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _unpacked(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"b64"}:
            return base64.b64decode(value["b64"])
        return {name: _unpacked(entry) for name, entry in value.items()}
    return value

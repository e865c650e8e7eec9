"""What all messages of a round are bound to, and a client's first message."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping

from performative.live.secure import keys
from performative.live.telling import RequestRefused


class Breach(RequestRefused):
    """A message violates the protocol: the client does not continue. The error text concerns only the message."""


@dataclasses.dataclass(frozen=True)
class Session:
    """One aggregation, on which all participants must agree.

    Attributes:
        run, round: of the federation
        model: fingerprint of what the server sent to train on, the model and its version. Clients that were sent
            different ones, so that one's update could be separated from the others' in the sum, do not accept each
            other's keys
        length: numbers in a masked vector
        threshold: t: minimum number of clients whose sum may be revealed
        clients: K: maximum number of participating clients
        step: h of `ring`
        weight_ratio: maximum ratio of two clients' weights: a sum of one heavy client and others of almost no weight
            would be that client's update
    """

    run: str
    round: int
    model: str
    length: int
    threshold: int
    clients: int
    step: float
    weight_ratio: float

    @functools.cached_property
    def name(self) -> bytes:
        """A 32-byte digest of the session: part of every signature and every derived key."""
        text = json.dumps(["performative secure aggregation 1", dataclasses.asdict(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).digest()

    def about(self, purpose: str, *numbers: int) -> bytes:
        """A purpose within the session, as bytes."""
        return self.name + json.dumps([purpose, *numbers]).encode()


@dataclasses.dataclass(frozen=True)
class Advert:
    """A client's public keys for one round, signed by its identity: `sealing` for shares, `masking` for masks."""

    client: int
    sealing: bytes
    masking: bytes
    weight: float
    signature: bytes = b""

    def statement(self, session: Session) -> bytes:
        """What is signed."""
        return session.about("keys", self.client) + self.sealing + self.masking + self.weight.hex().encode()

    def signed(self, session: Session, identity: bytes) -> "Advert":
        return dataclasses.replace(self, signature=keys.sign(identity, self.statement(session)))


def pair_key(session: Session, private: bytes, mine: int, other: int, public: bytes) -> bytes:
    """The key of the mask that two clients share."""
    return keys.agree(private, public, session.about("mask", min(mine, other), max(mine, other)))


def seed_key(session: Session, seed: bytes, client: int) -> bytes:
    """The key of a client's own mask."""
    return keys.derive(seed, session.about("own mask", client))


def survivors_statement(session: Session, survivors: tuple[int, ...], adverts: Mapping[int, Advert]) -> bytes:
    """What every client signs before it reveals anything: which clients are in the sum, by number and by keys.

    Keys are new whenever a session is played, so a signature cannot be used again if a server repeats a round.
    """
    known = hashlib.sha256(b"".join(adverts[one].sealing + adverts[one].masking for one in survivors))
    return session.about("survivors", *survivors) + known.digest()

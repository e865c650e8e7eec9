"""What all messages of a round are bound to, and what a client says first."""

import dataclasses
import functools
import hashlib
import json

from performative.live.secure import keys
from performative.live.telling import RequestRefused


class Breach(RequestRefused):
    """A message breaks the protocol: the client will not go on with it. Its text is about the message alone."""


@dataclasses.dataclass(frozen=True)
class Session:
    """One aggregation, on which all who take part must agree.

    Attributes:
        run, round: of the federation
        model: fingerprint of what the server sent to train on. Clients that were sent different things, so that one's
            update could be told from the others' in the sum, do not accept each other's keys
        length: numbers in a masked vector
        threshold: t: fewest clients whose sum may be seen
        clients: K: most clients that may take part
        step: h of `ring`
        weight_ratio: most that one client may weigh in units of another: a sum of one heavy client and others that
            weigh next to nothing would be that client's update
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
        """32 bytes that stand for all of it: they go into every signature and every derived key."""
        text = json.dumps(["performative secure aggregation 1", dataclasses.asdict(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).digest()

    def about(self, purpose: str, *numbers: int) -> bytes:
        """A purpose within the session, as bytes."""
        return self.name + json.dumps([purpose, *numbers]).encode()


@dataclasses.dataclass(frozen=True)
class Advert:
    """A client's public keys of one round, signed by its identity: `sealing` for shares, `masking` for masks."""

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


def survivors_statement(session: Session, survivors: tuple[int, ...]) -> bytes:
    """What every client signs before it reveals anything: who is in the sum."""
    return session.about("survivors", *survivors)

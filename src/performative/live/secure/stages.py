"""A client's steps over a transport: one request per step, answered once; repeats get the same bytes.

The session's state is on the client's disk before an answer is sent, so a process that was killed, or one started for
every message, continues where the last one stopped. A repeated request for an answered step gets the same answer; a
different one is refused.
"""

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from performative._base.files import write_whole
from performative.live.federation import Federation, Ready
from performative.live.secure.participant import STEPS, Participant
from performative.live.secure.ring import TooLarge, to_ring
from performative.live.secure.roster import identity_of, read_roster
from performative.live.secure.session import Advert, Breach, Session
from performative.live.secure.settings import session_of
from performative.live.wire import Malformed, decode, digest, encode, unflatten

_FILE = "secure.bin"
Train = Callable[[bytes], bytes]


def pack(content: bytes) -> str:
    return base64.b64encode(content).decode()


def unpack(text: Any) -> bytes:
    """Bytes from a message; raises Malformed if it contains something else."""
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, TypeError) as error:
        raise Malformed("a key, share or signature cannot be read") from error


def pack_advert(advert: Advert) -> list[Any]:
    return [advert.client, pack(advert.sealing), pack(advert.masking), advert.weight, pack(advert.signature)]


def unpack_advert(told: Any) -> Advert:
    """A client's keys from a message; raises Malformed if they are invalid."""
    if not isinstance(told, list) or len(told) != 5 or not isinstance(told[0], int) or not isinstance(told[3], float):
        raise Malformed("a client's keys cannot be read")
    return Advert(told[0], unpack(told[1]), unpack(told[2]), told[3], unpack(told[4]))


def pack_all(entries: dict[int, bytes]) -> dict[str, str]:
    return {str(client): pack(content) for client, content in entries.items()}


def unpack_all(told: Any) -> dict[int, bytes]:
    """Bytes by client from a message."""
    if not isinstance(told, dict) or not all(str(client).isdecimal() for client in told):
        raise Malformed("the clients of a step cannot be read")
    return {int(client): unpack(content) for client, content in told.items()}


def entries_of(ready: Ready) -> int:
    """The number of entries of an update."""
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(ready.upload_like.delta))


def model_of(request: bytes) -> str:
    """A fingerprint of what a request sends to train on: the model, and the version that selects rows."""
    about, arrays = decode(request)
    return hashlib.sha256(encode({"version": about["version"]}, arrays)).hexdigest()


class Stages:
    """The sessions of one client. `folder` is its own."""

    def __init__(self, federation: Federation, client: int, folder: Path):
        self.federation, self.client, self.folder = federation, client, folder

    def answer(self, ready: Ready, asked: dict[str, Any], request: bytes, train: Train) -> bytes:
        """Answer the request of one step.

        Args:
            asked: the header of the request; run and round have been checked
            train: does the round's work for a request, or returns the result of the first time
        """
        name, mark = asked.get("step"), digest(request)
        if name not in STEPS:
            raise Breach("this federation uses secure aggregation, and the request names no step of it.")
        held = self._load(asked["run"], asked["round"])
        if held is not None and name in held.marks:
            if held.marks[name] == mark:
                return held.replies[name]
            raise Breach(f"the step {name!r} of round {asked['round']} was already answered, for another request.")
        try:
            if name == "keys":
                held = self._begin(ready, asked, model_of(request), train(request))
            if held is None:
                raise Breach(f"the step {name!r} came before the client's keys were requested.")
            about, arrays = self._take(ready, held, name, asked, train)
        except Malformed as error:
            raise Breach(f"the request cannot be read: {error}") from error
        about |= {"run": asked["run"], "round": asked["round"], "client": self.client, "request": mark, "step": name}
        held.marks[name], held.replies[name] = mark, encode(about, arrays)
        self._save(held)  # before it is sent
        return held.replies[name]

    def _begin(self, ready: Ready, asked: dict[str, Any], model: str, trained: bytes) -> "_Held":
        weight = asked.get("weight")
        if not isinstance(weight, float):
            raise Breach("the request has no weight.")
        secure = self.federation.secure_settings
        assert secure is not None
        parts = self.federation.problem, self.federation.algorithm
        session = session_of(secure, *parts, asked["run"], asked["round"], model, entries_of(ready))
        _whole(ready, session, weight, trained)  # fail now, while nobody depends on it
        return _Held(Participant(session, self.client, weight), trained, {}, {})

    def _take(
        self, ready: Ready, held: "_Held", name: str, asked: dict[str, Any], train: Train
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Do the step: returns the header and its arrays."""
        person = held.participant
        if name == "keys":
            told = decode(held.trained)[0]
            advert = pack_advert(person.advertise(identity_of(self.folder)))
            return {"keys": advert, "lost_memory": told["lost_memory"], "seconds": told["seconds"]}, {}
        if name == "shares":
            adverts = {one.client: one for one in map(unpack_advert, _listed(asked.get("keys")))}
            return {"shares": pack_all(person.share(adverts, read_roster(self.folder)))}, {}
        if name == "masked":
            values = _whole(ready, person.session, person.weight, held.trained)
            return {}, {"masked": person.mask(unpack_all(asked.get("shares")), values)}
        if name == "consent":
            survivors = tuple(_listed(asked.get("survivors")))
            if not all(isinstance(one, int) and not isinstance(one, bool) for one in survivors):
                raise Malformed("the survivors cannot be read")
            return {"signature": pack(person.consent(survivors, identity_of(self.folder)))}, {}
        return {"shares": pack_all(person.reveal(unpack_all(asked.get("signatures")), read_roster(self.folder)))}, {}

    def _load(self, run: str, round: int) -> "_Held | None":
        """The session of a round, None if there is none, or only one of another round."""
        path = self.folder / _FILE
        if not path.exists():
            return None
        about, arrays = decode(path.read_bytes())
        person = Participant.from_bytes(arrays["participant"].tobytes())
        if (person.session.run, person.session.round) != (run, round):
            return None
        replies = {name: arrays[f"reply {name}"].tobytes() for name in about["marks"]}
        return _Held(person, arrays["trained"].tobytes(), about["marks"], replies)

    def _save(self, held: "_Held") -> None:
        contents = {"participant": held.participant.to_bytes(), "trained": held.trained}
        contents |= {f"reply {name}": reply for name, reply in held.replies.items()}
        arrays = {name: np.frombuffer(content, np.uint8) for name, content in contents.items()}
        write_whole(self.folder / _FILE, encode({"marks": held.marks}, arrays), private=True)


class _Held:
    """A client's state of a session: the participant, the training result, and the requests and answers so far."""

    def __init__(self, participant: Participant, trained: bytes, marks: dict[str, str], replies: dict[str, bytes]):
        self.participant, self.trained, self.marks, self.replies = participant, trained, marks, replies


def _listed(told: Any) -> list[Any]:
    if not isinstance(told, list) or len(json.dumps(told)) > 1 << 24:
        raise Malformed("the clients of a step cannot be read")
    return told


def _whole(ready: Ready, session: Session, weight: float, trained: bytes) -> np.ndarray:
    """The client's update as integers."""
    delta = unflatten(ready.upload_like, decode(trained)[1], "upload").delta
    flat = np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(delta)])
    try:
        return to_ring(flat, weight, session.step, session.clients)
    except TooLarge as error:
        raise Breach(f"{error}.") from error

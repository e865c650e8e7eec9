"""A client's memory between rounds, on its own disk, so no kill loses or repeats a round."""

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from performative._base.files import Damaged, read_sealed, write_sealed, write_whole
from performative._engine.keys import RunKeys, run_keys
from performative.live.wire import Malformed, decode, encode, flatten, unflatten

_FILE = "memory.bin"
_SEED = "secret.seed"
_PUBLISHED = "published.json"


@dataclasses.dataclass(frozen=True)
class Answered:
    """The last round that a client answered.

    `before` is its memory as the server knew it then, at round `accepted` (-1: the start); `after` is what it becomes
    once the server confirms that it used the answer. `request` is the fingerprint of the request, `charged` the number
    of answers in the client's own privacy ledger.
    """

    run: str
    round: int
    accepted: int
    request: str
    before: Any
    after: Any
    reply: bytes
    charged: int = 0


class MemoryStore:
    """A client's folder: one file, written atomically."""

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def load(self, like: Any, run: str | None = None) -> Answered | None:
        """The last answer, None if there is none (or none of that run).

        An unreadable file raises an error; it is not ignored.
        """
        path = self.folder / _FILE
        if not path.exists():
            return None
        try:
            about, arrays = decode(read_sealed(path))
            if run is not None and about["run"] != run:
                return None
            return Answered(
                about["run"],
                about["round"],
                about["accepted"],
                about["request"],
                unflatten(like, arrays, "before"),
                unflatten(like, arrays, "after"),
                arrays["reply"].tobytes(),
                about["charged"],
            )
        except (Damaged, Malformed, KeyError) as error:
            raise ValueError(
                f"{path} does not contain this client's memory: {error}. Move the file away to reset this client."
            ) from error

    def charged(self) -> int:
        """The number of answers in the privacy ledger when the client last answered, in any run."""
        path = self.folder / _FILE
        return decode(read_sealed(path))[0]["charged"] if path.exists() else 0

    def save(self, answered: Answered) -> None:
        about = {name: getattr(answered, name) for name in ("run", "round", "accepted", "request", "charged")}
        arrays = flatten(answered.before, "before") | flatten(answered.after, "after")
        arrays["reply"] = np.frombuffer(answered.reply, np.uint8)
        write_sealed(self.folder / _FILE, encode(about, arrays), private=True)  # the reply is the update itself


def secret_keys_of(folder: Path, *purpose: str) -> RunKeys:
    """Keys that only the owner of the folder knows, different for each purpose."""
    path = folder / _SEED
    if not path.exists():
        write_whole(path, os.urandom(32), private=True)
    secret = path.read_bytes()
    if len(secret) != 32:
        raise ValueError(f"{path} must contain 32 bytes; it contains {len(secret)}.")
    words = hashlib.sha256(b"\0".join([secret, *(word.encode() for word in purpose)])).digest()[:8]
    return run_keys(jax.random.wrap_key_data(jnp.asarray(np.frombuffer(words, np.uint32)), impl="threefry2x32"))


def own_version(folder: Path, fingerprint: str, least: int) -> int:
    """The version under which a client publishes a personal model: that of the last one if unchanged, otherwise the
    next, and at least `least`. It is saved before the model is published, so no kill uses a version twice."""
    path = folder / _PUBLISHED
    last = json.loads(path.read_text()) if path.exists() else None
    if last is not None and last["fingerprint"] == fingerprint:
        return int(last["version"])
    version = least if last is None else max(least, int(last["version"]) + 1)
    write_whole(path, json.dumps({"version": version, "fingerprint": fingerprint}).encode(), private=True)
    return version


def recall(last: Answered | None, accepted: int, first: Any) -> tuple[Any, bool]:
    """The memory that matches the server's records, and whether it was lost.

    Args:
        accepted: the last round in which the server used an answer of this client, -1 for none
        first: the memory at the start
    """
    if last is None:
        return first, accepted >= 0
    if last.round == accepted:
        return last.after, False
    if last.accepted == accepted:
        return last.before, False
    return first, accepted >= 0

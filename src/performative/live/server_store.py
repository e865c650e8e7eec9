"""The server's folder: checkpoint, models, what happened, and a lock so that only one server writes."""

import contextlib
import fcntl
import json
import os
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from performative._base.files import Damaged, digest_of, read_sealed, write_sealed, write_whole
from performative._engine.checkpoint import RunFolder
from performative.live.journal import Journal
from performative.live.wire import decode, encode, flatten, unflatten
from performative.types import Theta

_STATUS = "status.json"
_EVENTS = "events.jsonl"
_ROUNDS = "rounds.jsonl"
_RUN = "run.json"
_ROLLBACK = "rollback.json"


class ServerStore:
    """All that a server must not forget. `identity` is that of the run; a folder of another run is refused.

    state.json, state-*.npz, records-*.npz   model, aggregator's memory, who was heard, history
    models/000012.bin                        every model that was deployed, by version
    events.jsonl                             what went wrong and what was decided, a line each
    status.json, rounds.jsonl                where the run stands, and how each round went
    ledger.json                              what privacy was spent
    journal.jsonl, .head, .key, .pub         the signed log of rounds, deployments, refusals, approvals, rollbacks
    rollback.json                            clients that have not met a model since the last rollback
    """

    def __init__(self, folder: str | os.PathLike[str], identity: dict[str, Any], resume: bool):
        self.folder = Path(folder)
        self.checkpoint = RunFolder(folder, identity, resume).opened()
        self.journal = Journal(self.folder)
        self.models = self.folder / "models"
        self.models.mkdir(exist_ok=True)

    def begin(self, identity: str) -> dict[str, Any]:
        """The run's name, which no other run has (clients begin anew where it changes), and its first version.

        A start that was cut off before its first round was written, and then changed, is another run.
        """
        path = self.folder / _RUN
        told = json.loads(path.read_text()) if path.exists() else {"version": 0}
        if told.get("identity") != identity:
            index = self.checkpoint.read_index()
            known = uuid.uuid4().hex if index is None else index["notes"]["run"]
            told = {"run": known, "identity": identity, "version": told["version"]}
            write_whole(path, json.dumps(told).encode())
            self.journal.write("run began", run=known, identity=identity)
        return told

    def note(self, what: str, round: int, **facts: Any) -> None:
        """A line among the events, and one in the signed log."""
        self.journal.write(what, round=round + 1, **facts)
        _add_line(self.folder / _EVENTS, {"time": round_time(), "round": round, "what": what, **facts})

    def tell(self, **facts: Any) -> None:
        """Where the run stands."""
        write_whole(self.folder / _STATUS, json.dumps({"time": round_time(), **facts}).encode())

    def tell_round(self, **facts: Any) -> None:
        """The same, and a line among the rounds; a round that a kill cut off may stand there twice."""
        self.tell(**facts)
        _add_line(self.folder / _ROUNDS, facts)

    def log_deployed(self, version: int, round: int) -> None:
        """The model of a version goes out in a round: its file and digest are in the signed log before it does."""
        path = model_file(self.folder, version)
        facts = {"file": path.relative_to(self.folder).as_posix(), "digest": digest_of(path.read_bytes())}
        self.journal.write("deployed", version=version, round=round + 1, **facts)

    def unreached(self) -> list[int]:
        """Clients that have met no model since the last rollback."""
        path = self.folder / _ROLLBACK
        return json.loads(path.read_text()) if path.exists() else []

    def keep_reached(self, clients: Iterable[int]) -> None:
        """These have met the deployed model."""
        if left := self.unreached():
            self.keep_unreached(sorted(set(left) - set(clients)))

    def keep_unreached(self, clients: list[int]) -> None:
        write_whole(self.folder / _ROLLBACK, json.dumps(clients).encode())

    def keep_model(self, version: int, theta: Theta, **about: Any) -> int:
        """Write down a model under its version; returns that version, or the next free one where it is another's."""
        path = model_file(self.folder, version)
        if path.exists():
            if same_model(read_model(self.folder, version, theta), theta):
                return version
            version = max(model_versions(self.folder)) + 1
            path = model_file(self.folder, version)
        write_sealed(path, encode({"version": version, "time": round_time(), **about}, flatten(theta, "theta")))
        return version


def same_model(one: Theta, other: Theta) -> bool:
    """Whether two models are the same to the bit."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in pairs)


def first_version(folder: str | os.PathLike[str], version: int) -> None:
    """Let the run that begins in an empty folder number its models from here: no number is ever used twice."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_whole(Path(folder) / _RUN, json.dumps({"version": version}).encode())


def tell_no_start(folder: str | os.PathLike[str], why: str) -> None:
    """Write down that a run could not begin, for those who wait for it."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    last = read_status(folder) or {"run": "", "rounds": 0, "round": 0}
    kept = {name: last[name] for name in ("run", "rounds", "round")}
    write_whole(
        Path(folder) / _STATUS, json.dumps({"time": round_time(), **kept, "state": "failed", "why": why}).encode()
    )


def round_time() -> float:
    return round(time.time(), 3)


def model_file(folder: str | os.PathLike[str], version: int) -> Path:
    return Path(folder) / "models" / f"{version:06d}.bin"


def read_model(folder: str | os.PathLike[str], version: int, like: Any) -> Any:
    """The model that was deployed under a version."""
    path = model_file(folder, version)
    if not path.exists():
        there = ", ".join(str(v) for v in model_versions(folder)[-10:]) or "none"
        raise ValueError(f"there is no model of version {version} in {path.parent}; the latest there: {there}.")
    theta = jax.tree.map(np.asarray, unflatten(like, decode(read_sealed(path))[1], "theta"))
    if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(theta)):
        raise Damaged(f"{path} holds numbers that are not finite; such a model is never deployed.")
    return theta


def model_versions(folder: str | os.PathLike[str]) -> list[int]:
    """Versions of the models that were deployed, oldest first."""
    return sorted(int(path.stem) for path in (Path(folder) / "models").glob("*.bin") if path.stem.isdigit())


def read_status(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """What `tell` wrote last, None before the first time."""
    path = Path(folder) / _STATUS
    return json.loads(path.read_text()) if path.exists() else None


def read_events(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """What happened, in order."""
    return _read_lines(Path(folder) / _EVENTS)


def read_rounds(folder: str | os.PathLike[str], run: str) -> list[dict[str, Any]]:
    """How each round of a run went, in order."""
    found = {told["round"]: told for told in _read_lines(Path(folder) / _ROUNDS) if told["run"] == run}
    return [found[number] for number in sorted(found)]


def version_in(folder: str | os.PathLike[str], round: int) -> int:
    """The version of the model that was deployed in a round of the folder's run."""
    path = Path(folder) / _RUN
    run = json.loads(path.read_text()).get("run", "") if path.exists() else ""
    known = {told["round"]: told["version"] for told in read_rounds(folder, run)}
    if round not in known:
        there = f"rounds 1 to {max(known)}" if known else "none"
        raise ValueError(f"there is no round {round} of the run in {folder}; there: {there}.")
    return int(known[round])


def _add_line(path: Path, facts: dict[str, Any]) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(facts) + "\n")


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """One JSON object a line; a line that a kill cut short is left out."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


def is_held(folder: str | os.PathLike[str]) -> bool:
    """Whether a server is at work in the folder."""
    path = Path(folder) / "lock"
    if not path.exists():
        return False
    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False

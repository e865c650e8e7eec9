"""The server's folder: checkpoint, models, events, and a lock so only one server writes."""

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
from performative.live.journal import Journal, read_journal
from performative.live.wire import decode, encode, flatten, unflatten
from performative.types import Theta

_STATUS = "status.json"
_EVENTS = "events.jsonl"
_ROUNDS = "rounds.jsonl"
_RUN = "run.json"
_ROLLBACK = "rollback.json"


class ServerStore:
    """All that a server must not lose. `identity` is that of the run; a folder of another run raises an error.

    state.json, state-*.npz, records-*.npz   model, aggregator's memory, who was heard, history
    models/000012.bin                        the last models that were deployed, by version
    events.jsonl                             what went wrong and what was decided, a line each
    status.json, rounds.jsonl                where the run stands, and how each round went
    ledger.json                              the privacy loss so far
    journal.jsonl, .head, .key, .pub         the signed log of rounds, deployments, refusals, approvals, rollbacks
    rollback.json                            clients that have received no model since the last rollback
    """

    def __init__(self, folder: str | os.PathLike[str], identity: dict[str, Any], resume: bool):
        self.folder = Path(folder)
        self.checkpoint = RunFolder(folder, identity, resume).opened()
        self.journal = Journal(self.folder)
        deployed = (entry for entry in read_journal(self.folder) if entry["what"] == "deployed")
        self._deployed = {int(entry["facts"]["version"]) for entry in deployed}
        self.models = self.folder / "models"
        self.models.mkdir(exist_ok=True)

    def begin(self, identity: str) -> dict[str, Any]:
        """The run's unique name (clients reset when it changes), and its first version.

        A start that was interrupted before its first round was saved, and then changed, is another run.
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
        """Add a line to the events, and one to the signed log."""
        self.journal.write(what, round=round + 1, **facts)
        _add_line(self.folder / _EVENTS, {"time": round_time(), "round": round, "what": what, **facts})

    def tell(self, **facts: Any) -> None:
        """Write the status of the run."""
        write_whole(self.folder / _STATUS, json.dumps({"time": round_time(), **facts}).encode())

    def tell_round(self, **facts: Any) -> None:
        """The same, plus a line in the rounds; a round interrupted by a kill may appear twice."""
        self.tell(**facts)
        _add_line(self.folder / _ROUNDS, facts)

    def log_deployed(self, version: int, round: int, keeps: int) -> None:
        """Write to the signed log that a model is deployed in a round, before it is sent: its file, its digest and how
        many of the last models are kept. Older ones are then removed."""
        path = model_file(self.folder, version)
        facts = {"file": path.relative_to(self.folder).as_posix(), "digest": digest_of(path.read_bytes())}
        self.journal.write("deployed", version=version, round=round + 1, **facts, keeps=keeps)
        self._deployed.add(version)
        last = set(sorted(self._deployed)[-keeps:])
        for old in self._deployed & set(model_versions(self.folder)) - last:
            model_file(self.folder, old).unlink()

    def unreached(self) -> list[int]:
        """Clients that have received no model since the last rollback."""
        path = self.folder / _ROLLBACK
        return json.loads(path.read_text()) if path.exists() else []

    def keep_reached(self, clients: Iterable[int]) -> None:
        """Record that these clients have received the deployed model."""
        if left := self.unreached():
            self.keep_unreached(sorted(set(left) - set(clients)))

    def keep_unreached(self, clients: list[int]) -> None:
        write_whole(self.folder / _ROLLBACK, json.dumps(clients).encode())

    def keep_model(self, version: int, theta: Theta, **about: Any) -> int:
        """Save a model under its version; returns that version, or the next free one if it is taken."""
        path = model_file(self.folder, version)
        if path.exists():
            if same_model(read_model(self.folder, version, theta), theta):
                return version
            version = max(model_versions(self.folder)) + 1
            path = model_file(self.folder, version)
        write_sealed(path, encode({"version": version, "time": round_time(), **about}, flatten(theta, "theta")))
        return version


def same_model(one: Theta, other: Theta) -> bool:
    """Whether two models are bitwise equal."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in pairs)


def first_version(folder: str | os.PathLike[str], version: int) -> None:
    """Start the version numbers of a new run in an empty folder here: no number is ever used twice."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_whole(Path(folder) / _RUN, json.dumps({"version": version}).encode())


def tell_no_start(folder: str | os.PathLike[str], why: str) -> None:
    """Record that a run could not start, for processes that wait for it."""
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
        raise ValueError(
            f"there is no model of version {version} in {path.parent}; the latest there: {there}. A federation "
            "keeps only the last keep_models= models."
        )
    theta = jax.tree.map(np.asarray, unflatten(like, decode(read_sealed(path))[1], "theta"))
    if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(theta)):
        raise Damaged(f"{path} contains non-finite numbers; such a model is never deployed.")
    return theta


def model_versions(folder: str | os.PathLike[str]) -> list[int]:
    """Versions of the models that were deployed, oldest first."""
    return sorted(int(path.stem) for path in (Path(folder) / "models").glob("*.bin") if path.stem.isdigit())


def read_status(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The last status written by `tell`, None if there is none."""
    path = Path(folder) / _STATUS
    return json.loads(path.read_text()) if path.exists() else None


def read_events(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The events, in order."""
    return _read_lines(Path(folder) / _EVENTS)


def read_rounds(folder: str | os.PathLike[str], run: str) -> list[dict[str, Any]]:
    """The outcome of each round of a run, in order."""
    found = {told["round"]: told for told in _read_lines(Path(folder) / _ROUNDS) if told["run"] == run}
    return [found[number] for number in sorted(found)]


def rounds_size(folder: str | os.PathLike[str]) -> int:
    """Bytes that the outcomes of rounds take so far."""
    path = Path(folder) / _ROUNDS
    return path.stat().st_size if path.exists() else 0


def read_rounds_from(folder: str | os.PathLike[str], at: int) -> tuple[list[dict[str, Any]], int]:
    """The outcomes of rounds written from this byte on, and the byte after them."""
    path = Path(folder) / _ROUNDS
    if not path.exists():
        return [], at
    with open(path, "rb") as file:
        file.seek(at)
        content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    return _parse(whole.decode()), at + len(whole)


def version_in(folder: str | os.PathLike[str], round: int) -> int:
    """The version of the model that was deployed in a round of the folder's run."""
    path = Path(folder) / _RUN
    run = json.loads(path.read_text()).get("run", "") if path.exists() else ""
    known = {told["round"]: told["version"] for told in read_rounds(folder, run)}
    if round not in known:
        there = f"rounds 1 to {max(known)}" if known else "none"
        raise ValueError(f"there is no round {round} of the run in {folder}; available: {there}.")
    return int(known[round])


def _add_line(path: Path, facts: dict[str, Any]) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(facts) + "\n")


def _read_lines(path: Path) -> list[dict[str, Any]]:
    return _parse(path.read_text(encoding="utf-8")) if path.exists() else []


def _parse(text: str) -> list[dict[str, Any]]:
    """One JSON object per line; a line truncated by a kill is skipped."""
    found = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


def is_held(folder: str | os.PathLike[str]) -> bool:
    """Whether a server is running in the folder."""
    path = Path(folder) / "lock"
    if not path.exists():
        return False
    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False

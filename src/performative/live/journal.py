"""A signed, append-only log: what a federation's server did, and what it refused to do.

    line n:  {"n": n, "time": ..., "what": ..., "facts": {...}, "previous": hash of line n - 1, "signature": ...}
    hash of a line = sha256 of its bytes;  the signature is the server's, of all the rest of the line

journal.jsonl contains the lines, journal.head their number and the hash of the last one, also signed: edits, deletions,
reordering and truncation are detected. Every line is on disk before the server continues. A line truncated by a crash
is removed when the log is next written to, and the log says so. Several processes may write: the server logs its
rounds, and commands log who was approved or expelled meanwhile; each waits for its turn.

Whoever has the server's key can write another history, and whoever has an old copy of both files can put it back, but
neither can change one whose head others have recorded: `verify_journal(folder, head=...)` checks whether a hash
recorded earlier is still in the log.
"""

import bisect
import contextlib
import dataclasses
import hashlib
import json
import math
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from performative._base.files import write_whole
from performative.live.secure import keys

_LINES, _HEAD, _KEY, _PUBLIC = "journal.jsonl", "journal.head", "journal.key", "journal.pub"
_LOCK = "journal.lock"
_FIRST = "0" * 64
_NAMES = {"n", "time", "what", "facts", "previous", "signature"}


class Journal:
    """The log in a server's folder."""

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._count, self._last, self._size = 0, _FIRST, 0
        with self._turn():
            self._private = _key_of(self.folder)
            self._mend()
            if not (self.folder / _PUBLIC).exists():  # written last: if it exists, there was a log
                write_whole(self.folder / _PUBLIC, f"{self.public}\n".encode())

    @property
    def public(self) -> str:
        """The server's public key, in hex."""
        return keys.signing_public(self._private).hex()

    def sign(self, content: bytes) -> str:
        """The server's signature of content that is not a line, in hex."""
        return keys.sign(self._private, content).hex()

    def write(self, what: str, **facts: Any) -> str:
        """Add a line; returns its hash."""
        with self._turn():
            path = self.folder / _LINES
            if (path.stat().st_size if path.exists() else 0) != self._size:  # another process has written since
                self._mend()
            return self._add(what, facts)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        import fcntl

        with open(self.folder / _LOCK, "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _add(self, what: str, facts: dict[str, Any]) -> str:
        entry = {"n": self._count, "time": round(time.time(), 3), "what": what, "facts": _plain(facts)}
        entry["previous"] = self._last
        line = _text(entry | {"signature": keys.sign(self._private, _text(entry)).hex()}) + b"\n"
        with open(self.folder / _LINES, "ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
            self._size = file.tell()
        self._count, self._last = self._count + 1, _hash(line)
        self._write_head()
        return self._last

    def _write_head(self) -> None:
        head = {"count": self._count, "last": self._last}
        signed = head | {"signature": keys.sign(self._private, _text(head)).hex()}
        write_whole(self.folder / _HEAD, _text(signed))

    def _mend(self) -> None:
        """Count the lines and hash the last one; remove a line truncated by a crash."""
        path = self.folder / _LINES
        if not path.exists() and not (self.folder / _HEAD).exists():
            if (self.folder / _PUBLIC).exists():
                raise ValueError(
                    f"{path} and {_HEAD} are missing, although the log had begun; restore them, or move the whole "
                    "folder away to start a new log."
                )
            self._write_head()  # before the first line: from now on a missing head is an error
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        lines = whole.splitlines(keepends=True)
        hashes = [_hash(line) for line in lines]
        fault = _check_head(self.folder, keys.signing_public(self._private), hashes) or _check_chain(lines, hashes)
        if fault:
            raise ValueError(  # another line would hide the fault
                f"{path}: {fault}. `performative federation verify` shows more; restore the file, or move the whole "
                "folder away to start a new log."
            )
        self._count, self._last, self._size = len(hashes), hashes[-1] if hashes else _FIRST, len(whole)
        if cut := len(content) - len(whole):
            with open(path, "r+b") as file:
                file.truncate(len(whole))
                os.fsync(file.fileno())
            self._add(
                "repaired", {"bytes": cut, "reason": "the last line was truncated by a crash while it was written"}
            )
        else:
            self._write_head()  # a crash may have come between the last line and its head


def succeed(before: Path, folder: Path) -> None:
    """Start a log in an empty folder that continues the one of another folder, with the same key."""
    if not (before / _KEY).exists():
        return
    write_whole(folder / _KEY, (before / _KEY).read_bytes(), private=True)
    lines = (before / _LINES).read_bytes().splitlines(keepends=True) if (before / _LINES).exists() else []
    Journal(folder).write("follows", folder=before.name, head=_hash(lines[-1]) if lines else _FIRST)


@dataclasses.dataclass(frozen=True)
class Verification:
    """The result of verifying a log.

    Attributes:
        lines: the number of valid lines, from the first on
        head: the hash of the last of them; recorded elsewhere, it commits the server to all lines up to here
        fault: what is wrong with the first invalid line, "" if nothing is
        line: the number of that line, counted from 1 as in editors; None if the fault concerns no line
        cut_short: whether a crash truncated the last line: that is not a fault, and the next write repairs it
    """

    lines: int
    head: str
    fault: str = ""
    line: int | None = None
    cut_short: bool = False

    @property
    def sound(self) -> bool:
        return not self.fault


def read_journal(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The lines of a log as written, unchecked."""
    path = Path(folder) / _LINES
    whole = path.read_bytes() if path.exists() else b""
    found = []
    for number, line in enumerate(whole[: whole.rfind(b"\n") + 1].splitlines(), 1):
        try:
            found.append(json.loads(line))
        except ValueError as error:
            raise ValueError(
                f"{path}: line {number} is not a line of this log. `performative federation verify` shows more; "
                "restore the file, or move the whole folder away to start a new log."
            ) from error
    return found


def verify_journal(folder: str | os.PathLike[str], key: str | None = None, head: str | None = None) -> Verification:
    """Verify the log in a server's folder, line by line, and report the first line that was altered.

    Args:
        key: the server's public key in hex, as recorded when the federation began; None uses journal.pub next to the
            log, which whoever altered the log could also have replaced
        head: a hash recorded earlier: it must still be that of a line

    Besides hashes, signatures and numbers it checks that rounds follow each other without a gap, and that the models
    logged as deployed are in the folder with the digests in the log: the last ones, as many as the log says are kept,
    or all of them if it does not say.
    """
    place = Path(folder)
    if not (place / _LINES).exists():
        return Verification(0, _FIRST, f"there is no {_LINES} in {place}")
    public = _public_of(place, key)
    head = None if head is None else head.strip().lower()
    if head is not None and not re.fullmatch("[0-9a-f]{64}", head):
        raise ValueError(f"head must be 64 hex digits, the hash of a line; got {head[:80]!r}.")
    content = (place / _LINES).read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    last, hashes, rounds, models = _FIRST, list[str](), dict[str, int](), _Models(place)
    for number, line in enumerate(whole.splitlines(keepends=True), 1):
        entry, fault = _read(line, number - 1, last, public)
        fault = fault or _out_of_order(entry, rounds) or models.fault(entry, number, last)
        if fault:
            return models.lost() or Verification(number - 1, last, fault, number)
        last = _hash(line)
        hashes.append(last)
    if lost := models.lost():
        return lost
    cut = len(content) > len(whole)
    fault = _check_head(place, public, hashes)
    if not fault and head is not None and head not in hashes:
        fault = f"the hash {head[:16]}... recorded earlier is that of none of the {len(hashes)} lines"
    return Verification(len(hashes), last, fault, None, cut)


def _read(line: bytes, n: int, last: str, public: bytes) -> tuple[dict[str, Any], str]:
    """A line, and what is wrong with it, by itself or relative to the previous line."""
    try:
        entry = json.loads(line)
        signature = bytes.fromhex(entry["signature"])
        rest = {name: value for name, value in entry.items() if name != "signature"}
        known = entry.keys() == _NAMES and _text(entry) + b"\n" == line
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}, "it is not a line of this log"
    if not known:
        return {}, "it does not have the format of this log's lines"
    if entry["previous"] != last:
        return {}, "it does not follow the previous line: a line was changed, removed, inserted or moved"
    if entry["n"] != n:
        return {}, f"it is numbered {entry['n']} instead of {n}"
    if not keys.is_signed(public, signature, _text(rest)):
        return {}, "its signature is not the server's"
    return entry, ""


def _out_of_order(entry: dict[str, Any], rounds: dict[str, int]) -> str:
    """Check that rounds count up by one within a run; a round interrupted by a crash may repeat. `rounds` contains the
    last one of each run."""
    if entry["what"] != "round":
        return ""
    run, now = entry["facts"]["run"], entry["facts"]["round"]
    last = rounds.get(run, 0)
    rounds[run] = now
    return "" if last <= now <= last + 1 and now >= 1 else f"round {now} comes after round {last}: there is a gap"


class _Models:
    """The models that were deployed according to the log. A missing one is lost, unless a line of the log says that
    only newer ones are kept; `oldest` is the first of these."""

    def __init__(self, folder: Path):
        self.folder, self.versions, self.oldest = folder, list[int](), -1
        self.gone: list[tuple[int, Verification]] = []

    def fault(self, entry: dict[str, Any], number: int, last: str) -> str:
        """What is wrong with the model of a line; `last` is the hash of the line before."""
        if entry["what"] != "deployed":
            return ""
        facts, version = entry["facts"], entry["facts"]["version"]
        if version not in self.versions[-1:]:
            bisect.insort(self.versions, version)
        if 0 < (keeps := facts.get("keeps", 0)) <= len(self.versions):
            self.oldest = max(self.oldest, self.versions[-keeps])
        path = self.folder / facts["file"]
        if not path.exists():
            fault = f"the model of version {version} is missing: there is no {path.name}"
            self.gone.append((version, Verification(number - 1, last, fault, number)))
        elif hashlib.sha256(path.read_bytes()).hexdigest() != facts["digest"]:
            return f"the model of version {version} is not the one that was deployed: {path.name} has changed"
        return ""

    def lost(self) -> Verification | None:
        """The first line whose model should be there."""
        return next((found for version, found in self.gone if version >= self.oldest), None)


def _check_head(folder: Path, public: bytes, hashes: list[str]) -> str:
    """Check the head: truncation leaves a head that counts more lines; a crash leaves one that counts one fewer."""
    try:
        told = json.loads((folder / _HEAD).read_bytes())
        signature = bytes.fromhex(told.pop("signature"))
        count, last = told["count"], told["last"]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return f"{_HEAD} is missing or cannot be read, so the number of lines is unknown"
    if not keys.is_signed(public, signature, _text(told)):
        return f"the signature of {_HEAD} is not the server's"
    if count > len(hashes):
        return f"{count - len(hashes)} of {count} lines were cut off the end"
    if count and hashes[count - 1] != last:
        return f"line {count} does not match {_HEAD}"
    return ""


def _check_chain(lines: list[bytes], hashes: list[str]) -> str:
    """Check that each line names the hash of the line before it; signatures are left to `verify_journal`."""
    for number, (line, before) in enumerate(zip(lines, [_FIRST, *hashes], strict=False), 1):
        if f'"previous":"{before}"'.encode() not in line:
            return f"line {number} does not follow the previous line: a line was changed, removed, inserted or moved"
    return ""


def _key_of(folder: Path) -> bytes:
    """The server's Ed25519 key, created if there is none."""
    path = folder / _KEY
    if not path.exists():
        if (folder / _LINES).exists():
            raise ValueError(f"{path} is missing, and {_LINES} can only be continued with that key; restore it.")
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, keys.new_signing_key(), private=True)
    private = path.read_bytes()
    if len(private) != keys.KEY:
        raise ValueError(f"{path} must contain {keys.KEY} bytes; it contains {len(private)}.")
    return private


def _public_of(folder: Path, key: str | None) -> bytes:
    """The public key passed in, or the one next to the log."""
    path = folder / _PUBLIC
    if key is None and not path.exists():
        raise ValueError(f"{path} is missing; pass the server's public key recorded earlier (--key).")
    text = path.read_text().strip() if key is None else key.strip()
    try:
        public = bytes.fromhex(text)
    except ValueError:
        public = b""
    if len(public) != keys.KEY:
        raise ValueError(f"key must be {2 * keys.KEY} hex digits, the server's public key; got {text[:80]!r}.")
    return public


def _plain(value: Any) -> Any:
    """Replace numbers that JSON cannot represent, such as an infinite epsilon, with words."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _text(entry: dict[str, Any]) -> bytes:
    """A canonical encoding of an entry, so what is signed is what is written."""
    return json.dumps(entry, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _hash(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()

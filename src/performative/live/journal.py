"""A signed log that is only ever added to: what a federation's server did, and what it refused to do.

    line n:  {"n": n, "time": ..., "what": ..., "facts": {...}, "previous": hash of line n - 1, "signature": ...}
    hash of a line = sha256 of its bytes;  the signature is the server's, of all the rest of the line

journal.jsonl holds the lines, journal.head how many there are and the hash of the last one, signed too: so that an
edit, a deletion, another order and lines cut off the end are seen. Every line is on the disk before the server goes on.
A line that a crash cut short is taken away when the log is next written to, and the log says so. Several processes may
write: the server its rounds, and commands who was approved or expelled meanwhile; each waits for its turn.

Who holds the server's key can write another history. What it cannot do is change one whose head others have noted:
`verify_journal(folder, head=...)` says whether a hash that was noted earlier is still in the log.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
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

    @property
    def public(self) -> str:
        """The server's public key, in hex."""
        return keys.signing_public(self._private).hex()

    def sign(self, content: bytes) -> str:
        """The server's signature of something else than a line, in hex."""
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
        """Find out how many lines there are and the hash of the last; take away a line that a crash cut short."""
        path = self.folder / _LINES
        if not path.exists() and not (self.folder / _HEAD).exists():
            self._write_head()  # before the first line: from now on a missing head is a fault
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        hashes = [_hash(line) for line in whole.splitlines(keepends=True)]
        if fault := _check_head(self.folder, keys.signing_public(self._private), hashes):
            raise ValueError(  # one more line would hide it
                f"{path}: {fault}. `performative federation verify` says more; restore the file, or put the whole "
                "folder aside to begin another log."
            )
        self._count, self._last, self._size = len(hashes), hashes[-1] if hashes else _FIRST, len(whole)
        if cut := len(content) - len(whole):
            with open(path, "r+b") as file:
                file.truncate(len(whole))
                os.fsync(file.fileno())
            self._add(
                "repaired", {"bytes": cut, "reason": "the last line was cut short, by a crash while it was written"}
            )
        else:
            self._write_head()  # a crash may have come between the last line and its head


def succeed(before: Path, folder: Path) -> None:
    """Let the log that begins in an empty folder follow the one of another, with the same key."""
    if not (before / _KEY).exists():
        return
    write_whole(folder / _KEY, (before / _KEY).read_bytes(), private=True)
    lines = (before / _LINES).read_bytes().splitlines(keepends=True) if (before / _LINES).exists() else []
    Journal(folder).write("follows", folder=before.name, head=_hash(lines[-1]) if lines else _FIRST)


@dataclasses.dataclass(frozen=True)
class Verification:
    """What a look at a log found.

    Attributes:
        lines: how many are sound, from the first on
        head: the hash of the last of them; noted elsewhere, it ties the server to all lines up to here
        fault: what is wrong with the first bad line, "" where nothing is
        line: the number of that line, counted from 1 as editors do; None where the fault is of no line
        cut_short: whether the last line was cut short by a crash: that is no fault, and is repaired at the next write
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
    """The lines of a log as they stand there, unchecked."""
    path = Path(folder) / _LINES
    whole = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in whole[: whole.rfind(b"\n") + 1].splitlines()]


def verify_journal(folder: str | os.PathLike[str], key: str | None = None, head: str | None = None) -> Verification:
    """Go through the log in a server's folder, line by line, and name the first that is not as it was written.

    Args:
        key: the server's public key in hex, as it was noted when the federation began; None takes journal.pub beside
            the log, which whoever altered the log could have replaced too
        head: a hash that was noted earlier: it must still be that of a line

    Beside hashes, signatures and numbers it checks that rounds follow each other without a gap, and that every model
    that is said to be deployed lies in the folder with the digest that was written down.
    """
    place = Path(folder)
    if not (place / _LINES).exists():
        return Verification(0, _FIRST, f"there is no {_LINES} in {place}")
    public = _public_of(place, key)
    content = (place / _LINES).read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    last, hashes, rounds = _FIRST, list[str](), dict[str, int]()
    for number, line in enumerate(whole.splitlines(keepends=True), 1):
        entry, fault = _read(line, number - 1, last, public)
        fault = fault or _out_of_order(entry, rounds) or _lost_model(place, entry)
        if fault:
            return Verification(number - 1, last, fault, number)
        last = _hash(line)
        hashes.append(last)
    cut = len(content) > len(whole)
    fault = _check_head(place, public, hashes)
    if not fault and head is not None and head not in hashes:
        fault = f"the hash {head[:16]}... that was noted earlier is of none of the {len(hashes)} lines"
    return Verification(len(hashes), last, fault, None, cut)


def _read(line: bytes, n: int, last: str, public: bytes) -> tuple[dict[str, Any], str]:
    """A line, and what is wrong with it by itself or after the one before."""
    try:
        entry = json.loads(line)
        signature = bytes.fromhex(entry["signature"])
        rest = {name: value for name, value in entry.items() if name != "signature"}
        known = entry.keys() == _NAMES and _text(entry) + b"\n" == line
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}, "it is no line of this log"
    if not known:
        return {}, "it is not written as this log writes its lines"
    if entry["previous"] != last:
        return {}, "it does not follow the line before: one was changed, taken out, put in or moved"
    if entry["n"] != n:
        return {}, f"it is numbered {entry['n']} where {n} comes"
    if not keys.is_signed(public, signature, _text(rest)):
        return {}, "its signature is not the server's"
    return entry, ""


def _out_of_order(entry: dict[str, Any], rounds: dict[str, int]) -> str:
    """Rounds count up by one within a run; a round that a crash cut off may come again. `rounds` holds the last one of
    each run."""
    if entry["what"] != "round":
        return ""
    run, now = entry["facts"]["run"], entry["facts"]["round"]
    last = rounds.get(run, 0)
    rounds[run] = now
    return "" if last <= now <= last + 1 and now >= 1 else f"round {now} comes after round {last}: there is a gap"


def _lost_model(folder: Path, entry: dict[str, Any]) -> str:
    if entry["what"] != "deployed":
        return ""
    path = folder / entry["facts"]["file"]
    if not path.exists():
        return f"the model of version {entry['facts']['version']} is gone: there is no {path.name}"
    if hashlib.sha256(path.read_bytes()).hexdigest() != entry["facts"]["digest"]:
        version = entry["facts"]["version"]
        return f"the model of version {version} is not the one that was deployed: {path.name} has changed"
    return ""


def _check_head(folder: Path, public: bytes, hashes: list[str]) -> str:
    """Lines cut off the end leave a head that knows more of them; a crash leaves one that knows one fewer."""
    try:
        told = json.loads((folder / _HEAD).read_bytes())
        signature = bytes.fromhex(told.pop("signature"))
        count, last = told["count"], told["last"]
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return f"{_HEAD} is missing or cannot be read, so that nobody knows how many lines there were"
    if not keys.is_signed(public, signature, _text(told)):
        return f"the signature of {_HEAD} is not the server's"
    if count > len(hashes):
        return f"{count - len(hashes)} of {count} lines were cut off the end"
    if count and hashes[count - 1] != last:
        return f"line {count} is not the one that {_HEAD} knows"
    return ""


def _key_of(folder: Path) -> bytes:
    """The server's Ed25519 key, made where there is none."""
    path = folder / _KEY
    if not path.exists():
        if (folder / _LINES).exists():
            raise ValueError(f"{path} is missing, and {_LINES} beside it can only go on with that key; restore it.")
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, keys.new_signing_key(), private=True)
    private = path.read_bytes()
    if len(private) != keys.KEY:
        raise ValueError(f"{path} must hold the {keys.KEY} bytes that were written there; it holds {len(private)}.")
    if not (folder / _PUBLIC).exists():
        write_whole(folder / _PUBLIC, f"{keys.signing_public(private).hex()}\n".encode())
    return private


def _public_of(folder: Path, key: str | None) -> bytes:
    """The public key that was given, or the one beside the log."""
    path = folder / _PUBLIC
    if key is None and not path.exists():
        raise ValueError(f"{path} is missing; give the server's public key as it was noted (--key).")
    text = path.read_text().strip() if key is None else key.strip()
    try:
        public = bytes.fromhex(text)
    except ValueError:
        public = b""
    if len(public) != keys.KEY:
        raise ValueError(f"key must be {2 * keys.KEY} hex digits, the server's public key; got {text[:80]!r}.")
    return public


def _plain(value: Any) -> Any:
    """With words for numbers that JSON has none for, such as an infinite epsilon."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _text(entry: dict[str, Any]) -> bytes:
    """One way to write an entry, so that what is signed is what stands there."""
    return json.dumps(entry, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _hash(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()

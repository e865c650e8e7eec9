"""A signed, append-only log: what a federation's server did, and what it refused to do.

    line n:  {"n": n, "time": ..., "what": ..., "facts": {...}, "previous": hash of line n - 1, "signature": ...}
    hash of a line = sha256 of its bytes;  the signature is the server's, of all the rest of the line

journal.jsonl contains the lines, journal.head their number and the hash of the last one, also signed: edits, deletions,
reordering and truncation are detected. Every line is on disk before the server continues. A line truncated by a crash
is removed when the log is next written to, and the log says so. Several processes may write: the server logs its
rounds, and commands log who was approved or expelled meanwhile; each waits for its turn.

Whoever has the server's key can write another history, and whoever has an old copy of both files can put it back, but
neither can change one whose head others have recorded: `verify_journal(folder, head=...)` in `verification` checks
whether a hash recorded earlier is still in the log.
"""

import contextlib
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

LINES, HEAD, _KEY, PUBLIC = "journal.jsonl", "journal.head", "journal.key", "journal.pub"
_LOCK = "journal.lock"
FIRST = "0" * 64
# The first line of a log that continues one that was moved aside: the name of its folder, and its last hash.
FOLLOWS = "follows"


class Journal:
    """The log in a server's folder."""

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._count, self._last, self._size = 0, FIRST, 0
        with self._turn():
            self._private = _key_of(self.folder)
            self._mend()
            if not (self.folder / PUBLIC).exists():  # written last: if it exists, there was a log
                write_whole(self.folder / PUBLIC, f"{self.public}\n".encode())

    @property
    def public(self) -> str:
        """The server's public key, in hex."""
        return keys.signing_public(self._private).hex()

    @property
    def last(self) -> str:
        """The hash of the last line."""
        return self._last

    def sign(self, content: bytes) -> str:
        """The server's signature of content that is not a line, in hex."""
        return keys.sign(self._private, content).hex()

    def write(self, what: str, **facts: Any) -> str:
        """Add a line; returns its hash."""
        with self._turn():
            path = self.folder / LINES
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
        line = text_of(entry | {"signature": keys.sign(self._private, text_of(entry)).hex()}) + b"\n"
        with open(self.folder / LINES, "ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
            self._size = file.tell()
        self._count, self._last = self._count + 1, hash_of(line)
        self._write_head()
        return self._last

    def _write_head(self) -> None:
        head = {"count": self._count, "last": self._last}
        signed = head | {"signature": keys.sign(self._private, text_of(head)).hex()}
        write_whole(self.folder / HEAD, text_of(signed))

    def _mend(self) -> None:
        """Count the lines and hash the last one; remove a line truncated by a crash."""
        path = self.folder / LINES
        if not path.exists() and not (self.folder / HEAD).exists():
            if (self.folder / PUBLIC).exists():
                raise ValueError(
                    f"{path} and {HEAD} are missing, although the log had begun; restore them, or move the whole "
                    "folder away to start a new log."
                )
            self._write_head()  # before the first line: from now on a missing head is an error
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        lines = whole.splitlines(keepends=True)
        hashes = [hash_of(line) for line in lines]
        fault = check_head(self.folder, keys.signing_public(self._private), hashes) or _check_chain(lines, hashes)
        if fault:
            raise ValueError(  # another line would hide the fault
                f"{path}: {fault}. `performative federation verify` shows more; restore the file, or move the whole "
                "folder away to start a new log."
            )
        self._count, self._last, self._size = len(hashes), hashes[-1] if hashes else FIRST, len(whole)
        if cut := len(content) - len(whole):
            with open(path, "r+b") as file:
                file.truncate(len(whole))
                os.fsync(file.fileno())
            self._add(
                "repaired", {"bytes": cut, "reason": "the last line was truncated by a crash while it was written"}
            )
        else:
            self._write_head()  # a crash may have come between the last line and its head


def succeed(before: Path, folder: Path, name: str) -> None:
    """Start a log in an empty folder that continues the one in `before`, with the same key.

    `name`: the name of the folder in which the earlier log will be found.
    """
    if not any((before / file).exists() for file in (_KEY, LINES)):
        return
    earlier = Journal(before)  # without its key it raises: nobody could tell that the new log continues it
    write_whole(folder / _KEY, (before / _KEY).read_bytes(), private=True)
    later = Journal(folder)
    if earlier.last != FIRST:
        later.write(FOLLOWS, folder=name, head=earlier.last)


def read_journal(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The lines of a log as written, unchecked."""
    path = Path(folder) / LINES
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


def check_head(folder: Path, public: bytes, hashes: list[str]) -> str:
    """Check the head: truncation leaves a head that counts more lines; a crash leaves one that counts one fewer."""
    try:
        told = json.loads((folder / HEAD).read_bytes())
        signature = bytes.fromhex(told.pop("signature"))
        count, last = told["count"], told["last"]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return f"{HEAD} is missing or cannot be read, so the number of lines is unknown"
    if not keys.is_signed(public, signature, text_of(told)):
        return f"the signature of {HEAD} is not the server's"
    if count > len(hashes):
        return f"{count - len(hashes)} of {count} lines were cut off the end"
    if count and hashes[count - 1] != last:
        return f"line {count} does not match {HEAD}"
    return ""


def _check_chain(lines: list[bytes], hashes: list[str]) -> str:
    """Check that each line names the hash of the line before it; signatures are left to `verify_journal`."""
    for number, (line, before) in enumerate(zip(lines, [FIRST, *hashes], strict=False), 1):
        if f'"previous":"{before}"'.encode() not in line:
            return f"line {number} does not follow the previous line: a line was changed, removed, inserted or moved"
    return ""


def _key_of(folder: Path) -> bytes:
    """The server's Ed25519 key, created if there is none."""
    path = folder / _KEY
    if not path.exists():
        if (folder / LINES).exists():
            raise ValueError(f"{path} is missing, and {LINES} can only be continued with that key; restore it.")
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, keys.new_signing_key(), private=True)
    private = path.read_bytes()
    if len(private) != keys.KEY:
        raise ValueError(f"{path} must contain {keys.KEY} bytes; it contains {len(private)}.")
    return private


def _plain(value: Any) -> Any:
    """Replace numbers that JSON cannot represent, such as an infinite epsilon, with words."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def text_of(entry: dict[str, Any]) -> bytes:
    """A canonical encoding of an entry, so what is signed is what is written."""
    return json.dumps(entry, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def hash_of(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()

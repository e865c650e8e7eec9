"""Verification of a server's signed log, line by line."""

import bisect
import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from performative.live.journal import FIRST, FOLLOWS, LINES, PUBLIC, check_head, hash_of, text_of
from performative.live.secure import keys

_NAMES = {"n", "time", "what", "facts", "previous", "signature"}


@dataclasses.dataclass(frozen=True)
class Verification:
    """The result of verifying a log.

    Attributes:
        lines: the number of valid lines, from the first on
        head: the hash of the last of them; recorded elsewhere, it commits the server to all lines up to here
        fault: what is wrong with the first invalid line, "" if nothing is
        line: the number of that line, counted from 1 as in editors; None if the fault concerns no line
        cut_short: whether a crash truncated the last line: that is not a fault, and the next write repairs it
        archives: the logs of archived runs that it continues, by folder, with their lines; {} if there is a fault
    """

    lines: int
    head: str
    fault: str = ""
    line: int | None = None
    cut_short: bool = False
    archives: Mapping[str, int] = dataclasses.field(default_factory=dict, hash=False)

    @property
    def sound(self) -> bool:
        return not self.fault


def verify_journal(folder: str | os.PathLike[str], key: str | None = None, head: str | None = None) -> Verification:
    """Verify the log in a server's folder, line by line, and report the first line that was altered.

    Args:
        key: the server's public key in hex, as recorded when the federation began; None uses journal.pub next to the
            log, which whoever altered the log could also have replaced
        head: a hash recorded earlier: it must still be that of a line

    Besides hashes, signatures and numbers it checks that rounds follow each other without a gap, and that the models
    logged as deployed are in the folder with the digests in the log: the last ones, as many as the log says are kept,
    or all of them if it does not say. A log that continues that of an archived run is verified together with it, and
    with those before: each must lie beside the folder, under its name, and end with the line that the next continues.
    """
    place = Path(folder).resolve()
    if not (place / LINES).exists():
        return Verification(0, FIRST, f"there is no {LINES} in {place}")
    public = _public_of(place, key)
    head = None if head is None else head.strip().lower()
    if head is not None and not re.fullmatch("[0-9a-f]{64}", head):
        raise ValueError(f"head must be 64 hex digits, the hash of a line; got {head[:80]!r}.")
    log = _verify_one(place, public)
    found, hashes, archives = log.found, log.hashes, dict[str, int]()
    while found.sound and log.follows is not None:
        name, last = log.follows
        log = _verify_one(place.with_name(name), public)
        found = dataclasses.replace(found, fault=_unlinked(log, name, last, place))
        archives[name], hashes = log.found.lines, hashes + log.hashes
    if found.sound and head is not None and head not in hashes:
        found = dataclasses.replace(
            found, fault=f"the hash {head[:16]}... recorded earlier is that of none of the {len(hashes)} lines"
        )
    return dataclasses.replace(found, archives=archives) if found.sound else found


class _Log(NamedTuple):
    """One folder's log: what was found, the hashes of its lines, folder and last hash of the log that it continues."""

    found: Verification
    hashes: list[str]
    follows: tuple[str, str] | None


def _verify_one(place: Path, public: bytes) -> _Log:
    """Verify the log of one folder."""
    content = (place / LINES).read_bytes() if (place / LINES).exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    last, hashes, rounds, models = FIRST, list[str](), dict[str, int](), _Models(place)
    follows: tuple[str, str] | None = None
    for number, line in enumerate(whole.splitlines(keepends=True), 1):
        entry, fault = _read(line, number - 1, last, public)
        fault = fault or _out_of_order(entry, rounds) or models.fault(entry, number, last)
        if fault:
            return _Log(models.lost() or Verification(number - 1, last, fault, number), hashes, None)
        if number == 1 and entry["what"] == FOLLOWS:
            follows = Path(entry["facts"]["folder"]).name, entry["facts"]["head"]
        last = hash_of(line)
        hashes.append(last)
    if lost := models.lost():
        return _Log(lost, hashes, None)
    fault = check_head(place, public, hashes)
    return _Log(Verification(len(hashes), last, fault, None, len(content) > len(whole)), hashes, follows)


def _unlinked(log: _Log, name: str, last: str, place: Path) -> str:
    """What is wrong with the archived log in the folder `name`, which another continues after the hash `last`."""
    if not (place.with_name(name) / LINES).exists():
        return f"it continues the log in {name}, which is missing in {place.parent}; restore that folder"
    if not log.found.sound:
        where = "" if log.found.line is None else f", line {log.found.line}"
        return f"in {name}, which it continues{where}: {log.found.fault}"
    if log.found.head != last:
        return (
            f"the log in {name} does not end with the line that the next one continues: another folder was put in its "
            "place, or its last lines were changed"
        )
    return ""


def _read(line: bytes, n: int, last: str, public: bytes) -> tuple[dict[str, Any], str]:
    """A line, and what is wrong with it, by itself or relative to the previous line."""
    try:
        entry = json.loads(line)
        signature = bytes.fromhex(entry["signature"])
        rest = {name: value for name, value in entry.items() if name != "signature"}
        known = entry.keys() == _NAMES and text_of(entry) + b"\n" == line
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}, "it is not a line of this log"
    if not known:
        return {}, "it does not have the format of this log's lines"
    if entry["previous"] != last:
        return {}, "it does not follow the previous line: a line was changed, removed, inserted or moved"
    if entry["n"] != n:
        return {}, f"it is numbered {entry['n']} instead of {n}"
    if not keys.is_signed(public, signature, text_of(rest)):
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


def _public_of(folder: Path, key: str | None) -> bytes:
    """The public key passed in, or the one next to the log."""
    path = folder / PUBLIC
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

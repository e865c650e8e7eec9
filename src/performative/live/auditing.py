"""A federated audit: the server asks each member for sums of its logs, and analyzes them together."""

import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

from performative._base.files import only_one, write_whole
from performative.audit.merging import merge_summaries
from performative.audit.schema import LogError
from performative.audit.summaries import Summaries
from performative.audit.travel import unpack_summaries, write_summaries
from performative.live.federation import Federation
from performative.live.gathering import gather
from performative.live.journal import Journal
from performative.live.screen import Refused
from performative.live.transport import AbstractTransport
from performative.live.wire import decode, digest, encode

_FOLDER, _LAST = "audits", "last.json"
# Larger replies cannot be the sums of an audit.
_LONGEST = 1 << 28


def ask_for_sums(
    federation: Federation, transport: AbstractTransport, folder: str | os.PathLike[str]
) -> dict[str, Any]:
    """Ask every member for the sums of its logs; store them under `folder`/audits, with a line in the signed log.

    Returns the files, and which members are missing and why. Members offline for all of `timeout` are listed as
    missing.
    """
    logs, place, run = federation.audit, Path(folder), uuid.uuid4().hex
    if logs is None:
        raise ValueError("federation.toml has no [audit], which locates the members' logs.")
    head = {"run": run, "identity": federation.ready.identity, "round": 0, "version": 0, "accepted": -1}
    head |= {"step": "audit", "mark": logs.mark}
    requests = {client: encode(head | {"client": client}, {}) for client in range(federation.clients)}

    def read(reply: bytes, client: int) -> tuple[Summaries, dict[str, Any]]:
        if len(reply) > _LONGEST:
            raise Refused(f"it has {len(reply)} bytes; the limit for sums is {_LONGEST}")
        about, arrays = decode(reply)
        if about.get("request") != digest(requests[client]) or about.get("step") != "audit":
            raise Refused("it answers another request")
        if not isinstance(about.get("mark"), str) or about["mark"] != logs.mark or "header" not in arrays:
            raise Refused("its sums were computed with a different [audit]")
        try:
            return unpack_summaries(json.loads(arrays.pop("header").tobytes()), arrays), about
        except (LogError, ValueError) as error:
            raise Refused(str(error)) from error

    with only_one(place, f"{place}: a run is in progress; wait for it to end, then audit."):
        found = gather(transport, requests, read, timeout=float(federation.timeout), resend=float(federation.timeout))
        heard, refused = _apart(federation, found.heard)
        why = {c: "no answer" for c in requests} | found.failed | found.rejected | refused
        missing = {federation.member_name(c): reason for c, reason in why.items() if c not in heard}
        mine = place / _FOLDER / f"{time.strftime('%Y%m%d-%H%M%S')}-{run[:6]}"
        mine.mkdir(parents=True, exist_ok=True)
        files = {
            federation.member_name(c): str(write_summaries(seen, mine / f"{federation.member_name(c)}.npz"))
            for c, seen in sorted(heard.items())
        }
        Journal(place).write(
            "audited", run=run, folder=mine.relative_to(place).as_posix(), heard=sorted(files), missing=missing,
            digests={name: digest(Path(file).read_bytes()) for name, file in files.items()},
        )  # fmt: skip
        told = {"run": run, "time": round(time.time(), 3), "files": files, "missing": missing}
        write_whole(place / _FOLDER / _LAST, json.dumps(told).encode())
    return told


def _apart(federation: Federation, heard: dict[int, Summaries]) -> tuple[dict[int, Summaries], dict[int, str]]:
    """Keep the sums that are compatible. A member that reports another's clients, or other quantities, is excluded."""
    kept: dict[int, Summaries] = {}
    refused: dict[int, str] = {}
    owner: dict[str, int] = {}
    for client, seen in sorted(heard.items()):
        taken = [name for name in seen.clients if name in owner]
        if taken:
            refused[client] = f"it reports {taken[0]!r}, as {federation.member_name(owner[taken[0]])} does"
            continue
        try:
            merge_summaries([*kept.values(), seen])
        except LogError as error:
            refused[client] = str(error)
            continue
        kept[client] = seen
        owner |= dict.fromkeys(seen.clients, client)
    return kept, refused


def last_audit(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The last result of `ask_for_sums`, None if there is none."""
    path = Path(folder) / _FOLDER / _LAST
    return json.loads(path.read_text()) if path.exists() else None

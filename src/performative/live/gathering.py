"""Asking the clients of a round and waiting for them, no longer than the round may take."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from performative.live.screen import Refused
from performative.live.transport import AbstractTransport
from performative.types import Upload

# Seconds between two looks at who is there, and the longest single wait for an answer.
_LOOK = 1.0
_WAIT = 0.25


@dataclasses.dataclass
class Gathered:
    """Who was heard, in the order of their answers, and what became of the others.

    `rejected` answered with something that was not used, `failed` said that they could not answer. `worked` is the
    longest time that a client says it worked.
    """

    heard: dict[int, Upload] = dataclasses.field(default_factory=dict)
    rejected: dict[int, str] = dataclasses.field(default_factory=dict)
    failed: dict[int, str] = dataclasses.field(default_factory=dict)
    lost_memory: list[int] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    worked: float = 0.0


def gather(
    transport: AbstractTransport,
    requests: dict[int, bytes],
    read: Callable[[bytes | None, int], tuple[Upload, dict[str, Any]]],
    *,
    timeout: float,
    resend: float,
    enough: int | None = None,
) -> Gathered:
    """Ask every client, again after `resend` seconds of silence, until all are settled or the time is up.

    read:   the update in an answer, or `Refused`
    enough: stop once so many were heard

    A client is asked when it comes online within the round, so one that was restarted is heard all the same: asking
    twice is harmless, since it answers with the same bytes.
    """
    found, began = Gathered(), time.monotonic()
    asked_at: dict[int, float] = {}
    looked, online = -_LOOK, set[int]()

    def waiting() -> set[int]:
        return requests.keys() - found.heard.keys() - found.rejected.keys() - found.failed.keys()

    while (left := waiting()) and (now := time.monotonic() - began) < timeout:
        if enough is not None and len(found.heard) >= enough:
            break
        if now - looked >= _LOOK:
            online, looked = transport.online(), now
        due = {c for c in left & online if c not in asked_at or now - asked_at[c] >= resend}
        if due:
            transport.send({client: requests[client] for client in sorted(due)}, timeout - now)
            asked_at |= dict.fromkeys(due, now)
        for reply in transport.receive(min(_WAIT, timeout - now)):
            if reply.client not in waiting():
                continue  # an answer that comes twice, or from somebody who was not asked
            if reply.content is None:
                found.failed[reply.client] = reply.error
                continue
            try:
                upload, about = read(reply.content, reply.client)
            except Stale:
                continue
            except Refused as reason:
                found.rejected[reply.client] = str(reason)
                continue
            found.heard[reply.client] = upload
            if about.get("lost_memory") is True:
                found.lost_memory.append(reply.client)
            if isinstance(about.get("seconds"), float):
                found.worked = max(found.worked, about["seconds"])
            if enough is not None and len(found.heard) >= enough:
                break
    found.seconds = time.monotonic() - began
    return found


class Stale(Refused):
    """An answer to an earlier request: the one that counts may still come."""

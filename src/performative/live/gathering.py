"""Ask the clients of a round and wait for their answers, no longer than the round may take."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

from performative.live.screen import Refused, Stale
from performative.live.transport import AbstractTransport, Reply

# Seconds between checks of who is online, and the longest single wait for an answer.
_LOOK = 1.0
_WAIT = 0.25
_DAY = 86400.0

# The content of an answer (an update, or a step of secure aggregation), and its metadata.
Read = Callable[[bytes, int], tuple[Any, dict[str, Any]]]


@dataclasses.dataclass
class Gathered:
    """Who was heard, in the order of their answers, and what happened to the others.

    `rejected` sent an answer that was not used, `failed` reported that they could not answer. `worked` is the longest
    training time that a client reported. `refusal` says why none of the answers may be used.
    """

    heard: dict[int, Any] = dataclasses.field(default_factory=dict)
    rejected: dict[int, str] = dataclasses.field(default_factory=dict)
    failed: dict[int, str] = dataclasses.field(default_factory=dict)
    lost_memory: list[int] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    worked: float = 0.0
    refusal: str = ""


def gather(
    transport: AbstractTransport,
    requests: dict[int, bytes],
    read: Read,
    *,
    timeout: float,
    resend: float,
    enough: int | None = None,
    asked_at: dict[int, float] | None = None,
    arrived: dict[int, Any] | None = None,
    early: Sequence[Reply] = (),
    others: list[Reply] | None = None,
) -> Gathered:
    """Ask every client, again after `resend` seconds of silence, until all have answered or the time is up.

    Args:
        read: returns the content of an answer, such as an update, or raises `Refused`
        enough: stop once this many were heard
        asked_at: when (monotonic seconds) clients were asked before this call; updated in place
        arrived: what was heard before this call
        early: answers that came before this call and are still to be read
        others: to which the answers of clients that are not asked here are added

    A client is asked when it comes online within the round, so one that was restarted is still heard: asking twice is
    harmless, since it answers with the same bytes.
    """
    found, began = Gathered(dict(arrived or {})), time.monotonic()
    asked_at = {} if asked_at is None else asked_at
    left, online, looked = set(requests) - found.heard.keys(), set[int](), -_LOOK
    trouble: Exception | None = None
    left -= {reply.client for reply in early if reply.client in left and _settle(found, reply, read)}

    while left and (now := time.monotonic() - began) < timeout:
        if enough is not None and len(found.heard) >= enough:
            break
        try:
            if now - looked >= _LOOK:
                online, looked = transport.online(), now
            due = {c for c in left & online if c not in asked_at or began + now - asked_at[c] >= resend}
            if due:
                asked_at |= dict.fromkeys(due, began + now)
                transport.send({client: requests[client] for client in sorted(due)}, timeout - now)
            replies = transport.receive(min(_WAIT, timeout - now))
        except Exception as error:  # the network may come back within the round
            trouble = error
            time.sleep(min(_WAIT, max(0.0, timeout - now)))
            continue
        for reply in replies:
            if reply.client not in requests and others is not None:
                others.append(reply)
            if reply.client not in left:
                continue  # a duplicate answer, or one from a client that was not asked
            if _settle(found, reply, read):
                left.discard(reply.client)
    found.seconds = time.monotonic() - began
    if trouble is not None and not found.heard and not found.rejected and not found.failed:
        raise trouble
    return found


def _settle(found: Gathered, reply: Reply, read: Read) -> bool:
    """Record an answer; False if the client may still send the one that counts."""
    if reply.content is None:
        found.failed[reply.client] = reply.error
        return True
    try:
        upload, about = read(reply.content, reply.client)
    except Stale:
        return False
    except Refused as reason:
        found.rejected[reply.client] = str(reason)
        return True
    except Exception as error:  # whatever a client sends, the server continues
        found.rejected[reply.client] = f"it cannot be read: {type(error).__name__}: {error}"
        return True
    found.heard[reply.client] = upload
    if about.get("lost_memory") is True:
        found.lost_memory.append(reply.client)
    worked = about.get("seconds")
    if isinstance(worked, float) and 0 <= worked < _DAY:
        found.worked = max(found.worked, worked)
    return True

"""After a rollback: send the deployed model to every client, whoever participates in the round."""

from typing import Any

from performative.live.federation import Federation
from performative.live.gathering import gather
from performative.live.screen import Refused, Stale
from performative.live.server_store import ServerStore
from performative.live.transport import AbstractTransport, Reply
from performative.live.wire import decode, digest, encode, flatten
from performative.types import Broadcast

# The share of a round's time for clients that only receive a model.
_PART = 0.25


def redeploy(
    federation: Federation,
    transport: AbstractTransport,
    store: ServerStore,
    run: str,
    asked: set[int],
    broadcast: Broadcast,
    version: int,
) -> list[Reply]:
    """Send the deployed model to clients that have received none since the last rollback, and that are not asked to
    train. Returns what other clients sent meanwhile."""
    left = sorted(set(store.unreached()) - asked)
    if not left:
        return []
    at, arrays = int(broadcast.round), flatten(broadcast, "broadcast")
    head = {"run": run, "identity": federation.ready.identity, "round": at, "version": version, "accepted": -1}
    requests = {client: encode(head | {"client": client, "step": "deploy"}, arrays) for client in left}

    def read(reply: bytes, client: int) -> tuple[bool, dict[str, Any]]:
        about, _ = decode(reply)
        if about.get("step") != "deploy":
            raise Stale("it answers an earlier request")
        if about.get("request") != digest(requests[client]):
            raise Refused("it answers another request")
        return True, about

    timeout, others = _PART * float(federation.timeout), list[Reply]()
    found = gather(transport, requests, read, timeout=timeout, resend=timeout, others=others)
    store.keep_reached(found.heard)
    store.note("told of the rollback", at, version=version, clients=sorted(found.heard),
               unreached=sorted(set(left) - found.heard.keys()))  # fmt: skip
    return others

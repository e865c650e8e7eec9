"""The only module that knows Flower: our requests and answers inside its messages.

A message holds one record with one entry of bytes. Flower carries it, keeps strangers out (TLS, registered keys) and
starts processes; who takes part, with what weight, and what is done with the answers is decided by `serve`.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

try:
    from flwr.app import ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
except ModuleNotFoundError as error:
    raise ModuleNotFoundError('Flower is missing: pip install "performative[flower]"', name=error.name) from error

from performative.live.coordinator import serve
from performative.live.errand import run_errand
from performative.live.federation import Federation
from performative.live.transport import AbstractTransport, Reply

_RECORD, _REQUEST, _REPLY = "performative", "request", "reply"
# Seconds between two looks for answers.
_POLL = 0.1
# Flower's codes for what the client itself said: its program could not be loaded, raised, or fell over. Other errors
# are about the way there, and the client is asked again.
_CLIENT_ERRORS = (1, 2, 6, 7, 8)


def client_app(make: Callable[[], Federation], file: str) -> ClientApp:
    """A client: `client_app(federation, __file__)` in an app's module, where `federation()` makes the federation.

    The node's configuration says which client this is (`client`) and where its memory lies (`state`).
    """
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        request = _bytes_in(message, _REQUEST)
        client, folder = int(context.node_config["client"]), str(context.node_config["state"])
        left = message.metadata.created_at + message.metadata.ttl - time.time()
        reply = run_errand(make, Path(file), client, Path(folder), request, left)
        return Message(RecordDict({_RECORD: ConfigRecord({_REPLY: reply})}), reply_to=message)

    return app


def server_app(make: Callable[[], Federation]) -> ServerApp:
    """The server. The run's configuration says where its books lie (`state`) and who is who (`registry`)."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        config = context.run_config
        folder = Path(str(config["state"]))
        rounds = int(str(config.get("rounds", 0))) or None
        transport = FlowerTransport(grid, read_registry(Path(str(config["registry"]))))
        serve(make(), transport, folder, resume=bool(config.get("resume", False)), rounds=rounds)

    return app


def read_registry(path: Path) -> dict[bytes, int]:
    """Client numbers by public key."""
    known = json.loads(path.read_text())
    return {entry["public_key"].encode(): int(client) for client, entry in known.items()}


class FlowerTransport(AbstractTransport):
    """Flower's grid. A node is the client whose registered key it proved to hold; whatever it says of itself is not
    asked. Nodes with other keys are left alone."""

    def __init__(self, grid: Grid, registry: dict[bytes, int]):
        self._grid, self._registry = grid, registry
        self._nodes: dict[int, int] = {}
        self._waiting: dict[str, tuple[int, float]] = {}  # by message: the client, and when it is void

    def online(self) -> set[int]:
        self._nodes = {
            self._registry[node.public_key]: node.node_id
            for node in self._grid.get_nodes()
            if node.public_key in self._registry
        }
        return set(self._nodes)

    def send(self, requests: dict[int, bytes], seconds: float) -> None:
        there = [client for client in requests if client in self._nodes]
        messages = [
            Message(
                RecordDict({_RECORD: ConfigRecord({_REQUEST: requests[client]})}),
                dst_node_id=self._nodes[client],
                message_type="train",
                ttl=seconds,
            )
            for client in there
        ]
        for client, name in zip(there, self._grid.push_messages(messages), strict=True):
            if name:
                self._waiting[name] = client, time.monotonic() + seconds

    def receive(self, seconds: float) -> list[Reply]:
        until = time.monotonic() + seconds
        while True:
            found = self._pull() if self._waiting else []
            if found or time.monotonic() >= until:
                return found
            time.sleep(min(_POLL, max(0.0, until - time.monotonic())))

    def _pull(self) -> list[Reply]:
        found = []
        for message in self._grid.pull_messages(list(self._waiting)):
            asked = self._waiting.pop(message.metadata.reply_to_message_id, None)
            if asked is None:
                continue
            client, _ = asked
            if message.has_error():
                if message.error.code in _CLIENT_ERRORS:
                    found.append(Reply(client, None, str(message.error.reason)))
            else:
                found.append(Reply(client, _bytes_in(message, _REPLY)))
        now = time.monotonic()
        self._waiting = {name: asked for name, asked in self._waiting.items() if asked[1] > now}
        return found


def say_goodbye(address: str, authority: Path, key_file: Path, node: int) -> None:
    """What a SuperNode says when it ends, said for one that was killed: a server takes no second one with its key."""
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key
    from flwr.proto.fleet_pb2 import DeactivateNodeRequest
    from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    key: Any = load_ssh_private_key(key_file.read_bytes(), None)
    signing: list[Any] = [
        RuntimeVersionHttpInterceptor(component_name="SuperNode"),
        NodeAuthHttpInterceptor(key, key.public_key()),
    ]
    with FleetHttpClient.from_server_address(address, False, str(authority), interceptors=signing) as link:
        link.DeactivateNode(DeactivateNodeRequest(node_id=node))


def _bytes_in(message: Message, name: str) -> bytes:
    """The bytes of a message, none where it holds something else; whoever reads them says whether they are sound."""
    try:
        content: Any = message.content[_RECORD][name]
    except (KeyError, TypeError, ValueError):
        return b""
    return content if isinstance(content, bytes) else b""

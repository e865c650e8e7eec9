"""The only module that knows Flower: our requests and answers inside its messages.

A message contains one record with one entry of bytes; a long request has a second record, with what is the same for
all clients, which Flower stores once. Flower transports messages, keeps strangers out (TLS, registered keys) and starts
processes; `serve` decides who takes part, with what weight, and what is done with the answers.
"""

import contextlib
import json
import os
import queue
import re
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

try:
    from flwr.app import ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
except ModuleNotFoundError as error:
    raise ModuleNotFoundError('Flower is missing: pip install "performative[flower]"', name=error.name) from error

from performative.config.errors import ConfigError
from performative.live.auditing import ask_for_sums
from performative.live.coordinator import serve
from performative.live.dispatch import DATA, Failed, dispatch_request
from performative.live.federation import Federation
from performative.live.limits import LEAST, TooLong, limit_here, tell_limit
from performative.live.server_store import read_status, tell_no_start
from performative.live.telling import tell_failure
from performative.live.transport import VACANT, AbstractTransport, Reply
from performative.live.wire import split_head

_RECORD, _REQUEST, _REPLY = "performative", "request", "reply"
# The rest of a long request, in a record of its own.
_REST, _BYTES = "rest", "bytes"
# Seconds between two polls for an answer, and seconds between polls per outstanding message: with many messages, each
# is polled less often, to spare Flower's server.
_POLL, _SHARE = 0.1, 0.02
# Seconds that a call to Flower's server may take, and how many answers a node may withhold before it is no longer asked
# (each blocks a thread until Flower gives up).
_CALL, _STUCK = 5.0, 8
# Parts that one answer may come in: Flower makes three of ours.
_MOST_PARTS = 16
# Flower's codes for errors of the client itself: its program could not be loaded, raised an error, or crashed. Other
# errors concern the transport, and the client is asked again.
_CLIENT_ERRORS = (1, 2, 6, 7, 8)
# How Flower formats an error in the client's program: its class and its text.
_UNWRAPPED = re.compile(r"\A<class '[\w.]*\.Failed'>:<'(.*)'>\Z", re.DOTALL)


def client_app(make: Callable[[], Federation], file: str) -> ClientApp:
    """A client: `client_app(federation, __file__)` in an app's module, where `federation()` returns the federation.

    The node's configuration sets which client this is (`client`), where its memory is stored (`state`) and, if the
    federation has a [data], the folder of its table (`data`).
    """
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        request = _bytes_in(message, _REQUEST) + _bytes_in(message, _BYTES, _REST)
        client, folder = int(context.node_config["client"]), str(context.node_config["state"])
        if data := context.node_config.get("data"):
            os.environ[DATA] = str(data)
        left = message.metadata.created_at + message.metadata.ttl - time.time()
        try:
            reply = dispatch_request(make, Path(file), client, Path(folder), request, left)
        except (Failed, TimeoutError):  # its text is already ours
            raise
        except Exception as error:  # Flower sends an error's text to the server
            raise Failed(tell_failure(error)) from error
        if len(reply) > limit_here():  # the server would not read it
            raise Failed(tell_limit("the answer", len(reply), limit_here()))
        return Message(RecordDict({_RECORD: ConfigRecord({_REPLY: reply})}), reply_to=message)

    return app


def server_app(make: Callable[[], Federation]) -> ServerApp:
    """The server. The run's configuration sets the folder of its records (`state`) and the `registry` of clients."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        config = context.run_config
        folder = Path(str(config["state"]))
        rounds = int(str(config.get("rounds", 0))) or None
        try:
            made = make()
        except Exception as error:  # there are no run records yet to report it in
            tell_no_start(folder, f"the server cannot load the app: {_in_bundle(error)}")
            raise
        registry = Path(str(config["registry"]))
        bound_pulls(limit_here())
        transport = FlowerTransport(grid, lambda: read_registry(registry), range(made.clients))
        if config.get("task") == "audit":
            ask_for_sums(made, transport, folder)
            return
        before = read_status(folder)
        try:
            serve(made, transport, folder, resume=bool(config.get("resume", False)), rounds=rounds)
        except Exception as error:
            if read_status(folder) == before:  # it did not come to its first round
                tell_no_start(folder, str(error))
            raise

    return app


def _in_bundle(error: Exception) -> str:
    """What is wrong with an app, without the folder that Flower unpacked it into."""
    where = str(getattr(error, "file", ""))
    text = str(error).replace(f"{Path(where).parent}{os.sep}", "") if where else f"{type(error).__name__}: {error}"
    if isinstance(error, ConfigError) and error.key.endswith((".path", ".file")):
        text += " Flower transports code and TOML, never data: name each member's own table in [data]."
    return text


def read_registry(path: Path) -> dict[bytes, int]:
    """Client numbers by public key."""
    known = json.loads(path.read_text())
    return {entry["public_key"].encode(): int(client) for client, entry in known.items()}


class FlowerTransport(AbstractTransport):
    """Flower's grid. A node is identified with the client whose registered key it holds, not by what it claims. Nodes
    with other keys are ignored.

    Members may be approved or expelled during a run: the registry is read again on every call of `online`. A client
    number without a key fails immediately: nobody waits for clients that cannot come.

    Every answer is fetched in its own thread, since Flower waits for all parts of an announced answer: a node that
    withholds them delays only its own answer.
    """

    def __init__(
        self,
        grid: Grid,
        registry: dict[bytes, int] | Callable[[], dict[bytes, int]],
        clients: Iterable[int] = (),
    ):
        self._grid, self._clients = grid, set(clients)
        self._read_registry = registry if callable(registry) else lambda: registry
        self._vacant: set[int] = set()
        self._nodes: dict[int, int] = {}
        self._arrived: queue.SimpleQueue[Reply | Exception] = queue.SimpleQueue()
        self._fetching: list[_Fetch] = []
        self._limit = limit_here()

    def online(self) -> set[int]:
        registry = self._read_registry()
        self._nodes = {
            registry[node.public_key]: node.node_id
            for node in _within(_CALL, lambda: list(self._grid.get_nodes()))
            if node.public_key in registry
        }
        self._vacant = self._clients - set(registry.values())
        return set(self._nodes) | self._vacant

    def send(self, requests: dict[int, bytes], seconds: float) -> None:
        self._fetching = [fetch for fetch in self._fetching if fetch.is_alive()]
        stuck = Counter(fetch.client for fetch in self._fetching if fetch.overdue())
        for client in [client for client in requests if stuck[client] >= _STUCK]:
            self._arrived.put(Reply(client, None, f"it announced {stuck[client]} answers and withholds them"))
        for client in self._vacant & set(requests):
            self._arrived.put(Reply(client, None, VACANT))
        if (longest := max(map(len, requests.values()), default=0)) > self._limit:  # no member would read it
            raise TooLong(tell_limit("a request", longest, self._limit))
        there = [client for client in requests if client in self._nodes and stuck[client] < _STUCK]
        rests: dict[bytes, ConfigRecord] = {}
        messages = [
            Message(
                _in_records(requests[client], rests),
                dst_node_id=self._nodes[client],
                message_type="train",
                ttl=seconds,
            )
            for client in there
        ]
        names = _within(max(_CALL, seconds), lambda: list(self._grid.push_messages(messages))) if messages else []
        pause = max(_POLL, _SHARE * len(self._fetching + names))
        for client, name in zip(there, names, strict=True):
            if name:
                fetch = _Fetch(self._grid, name, client, time.monotonic() + seconds, pause, self._arrived)
                self._fetching.append(fetch)
                fetch.start()

    def receive(self, seconds: float) -> list[Reply]:
        found: list[Reply] = []
        with contextlib.suppress(queue.Empty):
            while True:
                arrived = self._arrived.get(timeout=0 if found else max(0.0, seconds))
                if isinstance(arrived, Reply):
                    found.append(arrived)
                elif not found and self._arrived.empty():
                    raise arrived
        return found


def _in_records(request: bytes, rests: dict[bytes, ConfigRecord]) -> RecordDict:
    """A request: its head, and the rest in a record that all requests with the same rest share."""
    head, rest = split_head(request)
    record = RecordDict({_RECORD: ConfigRecord({_REQUEST: head})})
    if rest:
        record[_REST] = rests.setdefault(rest, ConfigRecord({_BYTES: rest}))
    return record


class _Fetch(threading.Thread):
    """Wait for the answer to one message until the message expires."""

    def __init__(self, grid: Grid, name: str, client: int, until: float, pause: float, arrived: queue.SimpleQueue[Any]):
        super().__init__(daemon=True)
        self.client = client
        self._grid, self._name, self._until, self._pause, self._arrived = grid, name, until, pause, arrived

    def overdue(self) -> bool:
        return time.monotonic() > self._until + self._pause

    def run(self) -> None:
        while time.monotonic() < self._until:
            try:
                for message in self._grid.pull_messages([self._name]):
                    if reply := self._read(message):
                        self._arrived.put(reply)
                    return
            except TooLong as refused:
                self._arrived.put(Reply(self.client, None, str(refused)))
                return
            except Exception as error:  # the network may come back within the round
                self._arrived.put(error)
            time.sleep(min(self._pause, max(0.0, self._until - time.monotonic())))

    def _read(self, message: Message) -> Reply | None:
        if not message.has_error():
            return Reply(self.client, _bytes_in(message, _REPLY))
        if message.error.code in _CLIENT_ERRORS:
            return Reply(self.client, None, _UNWRAPPED.sub(r"\1", str(message.error.reason)))
        return None


def bound_pulls(limit: int) -> None:
    """Limit the bytes of one answer that this process accepts, in however many parts it comes."""
    from flwr.superlink.grid import http_grid

    grid: Any = http_grid  # the attributes changed here are private
    pull = getattr(grid.pull_objects, "unbounded", grid.pull_objects)

    def pull_bounded(object_ids: list[str], pull_object_fn: Callable[[str], bytes], **options: Any) -> Any:
        if len(object_ids) > _MOST_PARTS:
            raise TooLong(f"the answer comes in {len(object_ids)} parts; an honest one has at most {_MOST_PARTS}")
        lock, count = threading.Lock(), 0

        def counted(name: str) -> bytes:
            nonlocal count
            content = pull_object_fn(name)
            with lock:
                count += len(content)
            if count > limit:
                raise TooLong(tell_limit("the answer", count, limit))
            return content

        return pull(object_ids, counted, **options)

    pull_bounded.unbounded = pull  # type: ignore[attr-defined]  # so that a second call does not wrap this one
    grid.pull_objects = pull_bounded


def _within(seconds: float, call: Callable[[], Any]) -> Any:
    """What the call returns, or TimeoutError: Flower retries indefinitely if its server does not answer."""
    box: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            box.put((call(), None))
        except BaseException as error:
            box.put((None, error))

    threading.Thread(target=work, daemon=True).start()
    try:
        result, error = box.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"Flower's server did not answer within {seconds:.3g} s") from None
    if error is not None:
        raise error
    return result


def deregister_node(address: str, authority: Path, key_file: Path, node: int) -> None:
    """Deregister a SuperNode that was killed: a server accepts no second one with the same key."""
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key
    from flwr.proto.fleet_pb2 import DeactivateNodeRequest
    from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    from performative.live.loopback.answers import Meter

    key: Any = load_ssh_private_key(key_file.read_bytes(), None)
    signing: list[Any] = [
        RuntimeVersionHttpInterceptor(component_name="SuperNode"),
        NodeAuthHttpInterceptor(key, key.public_key()),
    ]
    with FleetHttpClient.from_server_address(address, False, str(authority), interceptors=signing) as link:
        link._client.event_hooks["response"].append(Meter(LEAST).watch)
        link.DeactivateNode(DeactivateNodeRequest(node_id=node))


def build_app(folder: Path) -> bytes:
    """An app folder as Flower transports it: the same bytes for the same files, so a hash identifies it."""
    from flwr.cli.build import build_fab_from_disk

    with warnings.catch_warnings():  # from a library that Flower uses
        warnings.simplefilter("ignore", DeprecationWarning)
        return build_fab_from_disk(folder)


def versions() -> dict[str, str]:
    """The versions of Flower and of this library; server and members should have the same."""
    from flwr import __version__ as flower

    from performative._version import __version__ as ours

    return {"flwr": flower, "performative": ours}


def is_unreachable(error: Exception) -> bool:
    """Whether an error means only that the server was not reached."""
    import httpx

    return isinstance(error, httpx.TransportError)


def _bytes_in(message: Message, name: str, record: str = _RECORD) -> bytes:
    """The bytes of a message, b"" if it contains something else; their reader checks whether they are valid."""
    try:
        content: Any = message.content[record][name]
    except (KeyError, TypeError, ValueError):
        return b""
    return content if isinstance(content, bytes) else b""

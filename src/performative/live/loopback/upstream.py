"""Changes to Flower's own processes, each with its reason; `guard` is called before one of its commands runs.

| change | reason |
| --- | --- |
| `Gate` in front of the SuperLink's and the SuperNode's HTTP service | Flower's Control and Runtime APIs do not authenticate callers, and share a port with the Fleet API, which does |
| the gate authenticates the caller before a long body is read (`known_key`) | Flower reads the whole request before it checks who sent it |
| the SuperLink's database waits for its turn (`DATABASE`) | Flower's gives up after 5 s and answers 500 while the messages of a large model are being written; it also keeps 64 MB for each connection |
| HTTP is parsed by h11 | httptools, which uvicorn prefers, accepts headers of unlimited size |
| a SuperNode reads no more of an answer than the limit (`bound_answers`) | Flower reads whatever the server sends |
| a SuperNode polls more often while messages arrive (`Pace`) | Flower's sleeps 3 s before each poll, which is most of a short round |
| a SuperExec passes a task's token in memory (`hide_token`) | Flower puts it on the command line, which every user of the machine can read |
| a node's processes send to their SuperNode only if a process of this user accepts the connection (`talk_to_ours`) | the port is free while the SuperNode restarts, and the connection is not encrypted |
| a SuperNode takes its app from a local file (`pin_app`) | Flower runs whatever app the server sends; its own check (`--trusted-entities`) needs signatures that only Flower's platform gives |

    python -m performative.live.loopback.upstream [--largest BYTES] flower-superlink ARGUMENTS...
"""  # noqa: E501  # a table

import contextlib
import dataclasses
import datetime
import hashlib
import importlib
import os
import socket
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from performative.live.limits import LARGEST, limit_here
from performative.live.loopback.answers import Meter
from performative.live.loopback.gate import Gate, Headers, owner
from performative.live.loopback.logs import keep_output_short
from performative.live.loopback.shims import FORK_SERVER

# The file of the app that a member agreed to run.
PINNED = "PERFORMATIVE_PINNED_APP"
# Options of manifests, before the name of the command.
_OPTIONS = {"--largest": LARGEST, "--app": PINNED}
FLEET = "/v1/fleet/"
# Seconds that a SuperNode sleeps if it found no message; it sleeps less while it waits for its own processes.
_NO_MESSAGE = 3.0
# SQLite settings in place of Flower's: milliseconds to wait for a lock, cache of each connection in KiB (hence
# negative), bytes to which the journal is truncated once its changes are written.
DATABASE = {"busy_timeout": "120000", "cache_size": "-8000", "journal_size_limit": str(16 << 20)}


def guard(name: str) -> None:
    """Apply the changes for the named command."""
    # Otherwise a proxy's headers would be trusted for the origin of a request.
    os.environ["FORWARDED_ALLOW_IPS"] = ""
    if name in ("flower-superlink", "flower-supernode"):
        from uvicorn.config import HTTP_PROTOCOLS

        HTTP_PROTOCOLS["auto"] = HTTP_PROTOCOLS["h11"]
    if name == "flower-superlink":
        import flwr.supercore.sql_mixin as database
        import flwr.superlink.main as superlink

        settings: Any = database  # the attributes changed here are private
        settings.SQLITE_PRAGMAS = tuple((dict(settings.SQLITE_PRAGMAS) | DATABASE).items())
        _put_gate_before(superlink, FLEET)
        # Its package has a function of the same name.
        starting: Any = importlib.import_module("flwr.superlink.cli.flower_superlink")
        superexec = starting._get_superexec_command
        starting._get_superexec_command = lambda *told, **named: changed(superexec(*told, **named))
    if name == "flower-supernode":
        import flwr.supernode.main as supernode

        _put_gate_before(supernode, None)
        bound_answers(limit_here())
        import flwr.supernode.start_client_internal as node

        waiting: Any = node  # the attributes changed here are private
        waiting.time = Pace()
        if FORK_SERVER not in os.environ:  # otherwise its forks apply the changes
            waiting.subprocess = SimpleNamespace(Popen=lambda words: subprocess.Popen(changed(words)))
        if pinned := os.environ.get(PINNED):
            pin_app(Path(pinned))
    if name == "flower-superexec":
        hide_token()
    if name in ("flower-superexec", "flwr-clientapp") and "--insecure" in sys.argv:
        talk_to_ours(sys.argv[sys.argv.index("--runtime-api-address") + 1])


def changed(words: Sequence[str]) -> list[str]:
    """The command line that runs one of Flower's commands with the changes."""
    return [sys.executable, "-m", "performative.live.loopback.upstream", *words]


def hide_token() -> None:
    """Make this SuperExec pass each process its token on standard input, a file in memory, not as an argument."""
    from flwr.supercore.superexec.executor import subprocess_executor

    def start(words: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        at = words.index("--token")
        with open(os.memfd_create("token"), "w+b") as file:
            file.write(words[at + 1].encode())
            file.flush()
            words = [*words[:at], "--token-file", "/proc/self/fd/0", *words[at + 2 :]]
            return subprocess.Popen(words, stdin=file, **options)

    executor: Any = subprocess_executor
    executor.subprocess = SimpleNamespace(Popen=start, DEVNULL=subprocess.DEVNULL)


def talk_to_ours(address: str, seconds: float = 60.0) -> None:
    """Let this process send to an address only if the process that accepts there is this user's (or root's).

    While a SuperNode restarts, its port is free, and another user of the machine could listen there.
    """
    host, _, port = address.rpartition(":")
    connect = socket.create_connection

    def create_connection(place: Any, *arguments: Any, **options: Any) -> socket.socket:
        made = connect(place, *arguments, **options)
        if (place[0], int(place[1])) != (host, int(port)):
            return made
        deadline, found = time.monotonic() + seconds, None
        while found is None and time.monotonic() < deadline:  # until it is accepted
            if (found := owner(made.getpeername(), made.getsockname())) is None:
                time.sleep(0.01)
        if found in (0, os.getuid()):
            return made
        made.close()
        who = "nobody accepts connections" if found is None else f"a process of user {found} listens"
        raise ConnectionRefusedError(f"{who} at {address}, where this user's SuperNode should listen")

    module: Any = socket
    module.create_connection = create_connection


def _put_gate_before(module: Any, passes: str | None) -> None:
    """Make a module's `create_app` return a service behind a gate."""
    create: Callable[..., Any] = module.create_app

    def create_app(*arguments: Any, **options: Any) -> Gate:
        service = create(*arguments, **options)
        return Gate(service, passes, lambda headers: known_key(service.state, headers))

    module.create_app = create_app


class Pace:
    """`time` for a SuperNode, which uses only its `sleep`: the wait for the next message grows from 0.2 s to Flower's.

    A node that is asked in each round answers promptly, and an idle one costs the server no more than before.
    """

    _first, _growth, _wait_for_reply = 0.2, 1.5, 0.1

    def __init__(self, sleep: Callable[[int | float], None] = time.sleep):
        self._sleep, self._next = sleep, self._first

    def sleep(self, seconds: int | float) -> None:
        if seconds >= _NO_MESSAGE:
            self._sleep(min(self._next, seconds))
            self._next = min(self._next * self._growth, seconds)
        else:
            self._sleep(min(seconds, self._wait_for_reply))
            self._next = self._first


def known_key(state: Any, headers: Headers) -> bytes | None:
    """The registered key that signed a request's timestamp; None if there is none.

    Like Flower's own check, which comes after the body is read, it accepts a signature of the timestamp alone: whoever
    sees one could reuse it while it is fresh, but TLS hides it.
    """
    from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
    from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
    from flwr.supercore.date import now
    from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature

    try:
        key, signature = (
            b64decode(headers[name.lower().encode()], validate=True)
            for name in (FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER)
        )
        when = headers[TIMESTAMP_HEADER.lower().encode()]
        age = (now() - datetime.datetime.fromisoformat(when.decode("ascii"))).total_seconds()
        if not -SYSTEM_TIME_TOLERANCE < age < TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE:
            return None
        if state.linkstate_factory.state().get_node_id_by_public_key(key) is None:
            return None
        return key if verify_signature(bytes_to_public_key(key), when, signature) else None
    except (KeyError, ValueError, TypeError):  # a header is missing or malformed
        return None


def bound_answers(limit: int) -> None:
    """Limit the bytes that this SuperNode reads of all answers of the server for one message."""
    from flwr.supernode import fleet_http_connection, start_client_internal
    from flwr.supernode.fleet_http_client import FleetHttpClient

    node: Any = start_client_internal  # the attributes changed here are private
    connection: Any = fleet_http_connection
    connect, meter = node.http_request_response, Meter(limit)

    class Metered(FleetHttpClient):
        def __init__(self, *arguments: Any, **options: Any):
            super().__init__(*arguments, **options)
            self._client.event_hooks["response"].append(meter.watch)

    @contextlib.contextmanager
    def connect_metered(*arguments: Any, **options: Any) -> Iterator[Any]:
        with connect(*arguments, **options) as (number, receive, *rest):

            def receive_next() -> Any:
                meter.begin()
                return receive()

            yield (number, receive_next, *rest)

    connection.FleetHttpClient = Metered
    node.http_request_response = connect_metered


def pin_app(file: Path) -> None:
    """Restrict this SuperNode to the app in the file. What the server says about an app is not used.

    A request for another app returns an error, before any of that app's bytes are fetched.
    """
    from flwr.app import Error
    from flwr.common.config import get_fab_config, get_metadata_from_config
    from flwr.common.constant import ErrorCode
    from flwr.supercore.fab import Fab
    from flwr.supernode import start_client_internal

    node: Any = start_client_internal  # the attributes changed here are private
    content = file.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    fab_id, version = get_metadata_from_config(get_fab_config(content))
    connect, pull = node.http_request_response, node._pull_and_store_message

    @contextlib.contextmanager
    def connect_pinned(*arguments: Any, **options: Any) -> Iterator[Any]:
        with connect(*arguments, **options) as (number, receive, send, get_run, _, *rest):

            def run_of(run_id: int) -> Any:
                return dataclasses.replace(get_run(run_id), fab_id=fab_id, fab_version=version, primary_task_type="")

            def app_of(fab_hash: str, run_id: int) -> Fab:
                ours = fab_hash == digest
                return Fab(fab_hash, content if ours else b"", {"valid_license": "pinned"})

            yield (number, receive, send, run_of, app_of, *rest)

    def pull_pinned(**options: Any) -> Any:
        return pull(**options | {"trusted_entities": {"pinned": digest}})

    def is_pinned(fab: Fab, trusted: dict[str, str]) -> bool:
        return hashlib.sha256(fab.content).hexdigest() == trusted["pinned"] == fab.hash_str

    node.http_request_response, node._pull_and_store_message = connect_pinned, pull_pinned
    node._verify_fab = is_pinned
    node.FAB_VERIFICATION_ERROR = Error(
        ErrorCode.INVALID_FAB,
        f"this member agreed to run the app {digest[:12]}, but the server sent another; send it a new invitation, "
        "written by `performative federation invite`, or with manifests the new app.fab.",
    )


def main(name: str, arguments: list[str]) -> object:
    """Run one of Flower's commands with the changes."""
    while name in _OPTIONS:
        os.environ[_OPTIONS[name]], name, *arguments = arguments
    if name != "flower-superexec":  # the process that started it shortens the same file
        keep_output_short()
    (script,) = entry_points(group="console_scripts", name=name)
    run = script.load()
    sys.argv = [name, *arguments]
    guard(name)
    return run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

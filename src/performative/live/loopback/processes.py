"""Start and stop a Flower federation on this machine: one SuperLink and one node per client, over TLS on loopback.

Only Flower's command lines are used. `start` may be called again at any time: it restarts what has died and leaves the
rest running. Each node has its own supervising process (`performative.live.loopback.supervisor`), which restarts a
SuperNode when it dies; only `start` restarts the SuperLink.
"""

import contextlib
import json
import math
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

from performative._base.files import in_turn, write_whole
from performative.live.limits import LARGEST, UNKNOWN
from performative.live.loopback.certificates import SERVER, SERVER_KEY
from performative.live.loopback.commands import FederationError, flwr, guarded, spawn, tail
from performative.live.loopback.interrupts import interrupts_held
from performative.live.loopback.process_table import end, identity, living, members, recorded, send, session, wait_for
from performative.live.loopback.registration import register_clients, register_members
from performative.live.loopback.site import CONNECTION, EVERYWHERE, LET_IN, LOOPBACK, REFUSED, Site, read_json

# For a damaged record of a process: `down` finds processes by their environment, too.
_DELETE = "delete it, then run `federation down` and `federation up`"


@dataclass(frozen=True)
class Status:
    """A run's state: pending, starting, running, completed, failed or stopped; and what Flower says about it."""

    state: str
    detail: str = ""

    @property
    def over(self) -> bool:
        return self.state in ("completed", "failed", "stopped")


def free_port() -> int:
    """A free port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _is_free(port: int, host: str = LOOPBACK) -> bool:
    with socket.socket() as probe:
        # Leftover connections of a dead server do not matter.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def check_listen(site: Site, host: str, port: int) -> None:
    """Raise if a SuperLink in the place of this site's could not listen there."""
    if not _is_free(0, host):
        raise ValueError(
            f"--listen must be an IPv4 address of this machine; {host} is not; pass one that is, or --listen "
            f"{EVERYWHERE} for all."
        )
    if not (port == site.port() and living(recorded(site, "superlink"))) and not _is_free(port, host):
        raise _cannot_listen(host, port)


def _cannot_listen(host: str, port: int | None) -> FederationError:
    return FederationError(
        f"cannot listen on {host}:{port}: another program uses it, or it is not an address of this machine; free it, "
        "or choose another: up --address HOST:PORT --listen IP."
    )


def answers(site: Site) -> bool:
    """Whether the SuperLink answers over TLS with a certificate signed by our authority."""
    trusted = ssl.create_default_context(cafile=str(site.authority))
    connection = HTTPSConnection(site.here, timeout=2.0, context=trusted)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def start(
    site: Site,
    clients: int,
    *,
    worker: Sequence[str] = (),
    warm: Sequence[str] = ("performative",),
    forks: bool = True,
    deadline: float | None = None,
    data: str | os.PathLike[str] | None = None,
    largest: int = UNKNOWN,
    timeout: float = 90.0,
) -> None:
    """Start a SuperLink and `clients` nodes unless they are running, and wait until all are online.

    - `worker`: a command that each node keeps running alongside (PERFORMATIVE_CLIENT is its client).
    - `warm`: modules that are imported once, before client processes are forked.
    - `forks=False`: every message starts a fresh process, as Flower does it.
    - `data`: the folder of the members' tables, which each node is told.
    - `deadline`: seconds after which a client process that still works on a message is killed.
    - `largest`: bytes that a message may have; more is refused unread.

    Running nodes keep the settings they were started with.
    """
    if isinstance(clients, bool) or clients < 1:
        raise ValueError(f"clients must be a whole number >= 1; got {clients!r}.")
    if deadline is not None and not 0 < deadline < math.inf:
        raise ValueError(f"deadline must be a positive number of seconds or None; got {deadline!r}.")
    if site.joined:
        raise ValueError(f"{site.folder.parent} is a member's folder; `performative federation join` starts its node.")
    folder = None if data is None else str(Path(data).absolute())
    if folder is not None and any(character in folder for character in "\"'\\\n"):
        raise ValueError(f"data: the path must not contain quotes or backslashes; got {folder}.")
    site.prepare()
    settings = {"worker": list(worker), "warm": list(warm), "forks": forks, "deadline": deadline, "data": folder}
    settings["largest"] = largest
    with in_turn(site.folder):  # one `start` or `stop` at a time
        if site.prepare(clients):  # running processes have the old certificates
            _stop(site)
        before = members(site)
        try:
            _start(site, clients, settings, timeout)
        except KeyboardInterrupt:
            with interrupts_held():
                _take_back(site, before)
            raise


def start_server(site: Site, largest: int = UNKNOWN, timeout: float = 90.0) -> None:
    """Start the SuperLink alone: members run on their own hosts."""
    site.prepare()
    with in_turn(site.folder):
        site.prepare()
        with interrupts_held():
            _start_superlink(site, largest)
        _wait_for_superlink(site, time.monotonic() + timeout, timeout)
        register_members(site)


def start_node(site: Site, client: int, settings: dict[str, Any], timeout: float) -> bool:
    """Start one client's node on a member's own host; False if the server rejects it."""
    site.prepare()
    refused = site.folder / REFUSED
    with in_turn(site.folder):
        if not living(recorded(site, f"client-{client}")):
            _end_node(site, client)
            refused.unlink(missing_ok=True)
            settings = {"clients": [client], **settings, "blas_threads": os.environ.get("OPENBLAS_NUM_THREADS")}
            with interrupts_held():
                keeper = _start_fork_server(site, settings)
            if keeper.stdin:
                with keeper.stdin, contextlib.suppress(BrokenPipeError):
                    keeper.stdin.write(b"go\n")
        wait_for(lambda: connected(site, client) or refused.exists(), timeout)
        if connected(site, client):
            return True
        if refused.exists():
            return False
    raise FederationError(
        f"the server at {site.address} was not reached within {timeout:g} s; the node keeps trying. Is the address "
        f"correct and reachable from this host? {tail(site.log(f'client-{client}'))}"
    )


def _take_back(site: Site, before: list[dict[str, Any]]) -> None:
    """Stop what was started since: an interrupted start leaves only what was running before."""
    end([process for process in members(site) if process not in before], 6.0)
    for path in (site.folder / "processes").glob("*.json"):
        if not living(read_json(path, _DELETE)):
            path.unlink()


def _start(site: Site, clients: int, settings: dict[str, Any], timeout: float) -> None:
    """What `start` does, within its lock."""
    until = time.monotonic() + timeout
    with interrupts_held():
        restarted = _start_superlink(site, settings["largest"])
    missing = [client for client in range(clients) if not living(recorded(site, f"client-{client}"))]
    for client in missing:
        _end_node(site, client)
    settings = {"clients": missing, **settings, "blas_threads": os.environ.get("OPENBLAS_NUM_THREADS")}
    # The fork server imports while the SuperLink starts and the keys are registered.
    keeper: subprocess.Popen[bytes] | None = None
    try:
        if missing:
            with interrupts_held():
                keeper = _start_fork_server(site, settings)
        _wait_for_superlink(site, until, timeout)
        register_clients(site, clients)
    except BaseException:
        if keeper:
            send(identity(keeper.pid), signal.SIGKILL)
            if keeper.stdin:
                keeper.stdin.close()
        raise
    if keeper and keeper.stdin:
        with keeper.stdin, contextlib.suppress(BrokenPipeError):  # its log is shown if nobody comes online
            keeper.stdin.write(b"go\n")
    if restarted:  # otherwise a node would notice after up to 20 s
        for client in set(range(clients)) - set(missing):
            if entry := recorded(site, f"client-{client}"):
                send(entry, signal.SIGHUP)
        time.sleep(0.2)
    _wait_online(site, clients, until, timeout)


def _wait_for_superlink(site: Site, until: float, timeout: float) -> None:
    if not wait_for(lambda: answers(site) or not living(recorded(site, "superlink")), until - time.monotonic()):
        raise FederationError(f"the SuperLink did not answer within {timeout:g} s; {tail(site.log('superlink'))}")
    if not living(recorded(site, "superlink")):
        raise FederationError(f"the SuperLink exited during startup; {tail(site.log('superlink'))}")


def largest_of(site: Site) -> int | None:
    """The limit that the SuperLink was started with; None if it is not running."""
    entry = recorded(site, "superlink")
    return entry.get("largest") if entry and living(entry) else None


def _start_superlink(site: Site, largest: int) -> bool:
    """Start the SuperLink unless it is running: same database, same port unless another program took it."""
    if living(recorded(site, "superlink")):
        return False
    port = site.port()
    if site.address is not None:  # members know this port, so it cannot change
        if port is None or not _is_free(port, site.listen):
            raise _cannot_listen(site.listen, port)
    elif port is None or not _is_free(port):
        if port is not None:  # nodes know the old port
            for client in site.registry():
                _end_node(site, client)
        port = free_port()
        site.connect(port)
    if not site.database.exists():
        site.write_registry({client: entry | {"node_id": None} for client, entry in site.registry().items()})
    secrets = site.certificates
    child = spawn(
        [
            *guarded("flower-superlink"),
            *("--host", site.listen, "--port", str(port)),
            *("--ssl-ca-certfile", str(site.authority), "--ssl-certfile", str(secrets / SERVER)),
            *("--ssl-keyfile", str(secrets / SERVER_KEY), "--database", str(site.database)),
            *("--enable-supernode-auth", "--disable-runtime-dependency-installation"),
        ],
        site,
        "superlink",
        variables={LARGEST: str(largest)},
    )
    write_whole(site.process("superlink"), json.dumps(identity(child.pid) | {"largest": largest}).encode())
    return True


def _start_fork_server(site: Site, settings: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Start the process that imports everything and, on a signal, forks a supervisor for each client."""
    arguments = [sys.executable, "-m", "performative.live.loopback.fork_server", str(site.folder), json.dumps(settings)]
    # Threads do not survive a fork.
    return spawn(arguments, site, "fork-server", subprocess.PIPE, {"OPENBLAS_NUM_THREADS": "1"})


def _end_node(site: Site, client: int) -> None:
    """Stop what a killed supervisor left of its node: two SuperNodes with one key would take each other's messages."""
    entry = recorded(site, f"client-{client}")
    if entry is None:
        return
    end([process for process in members(site) if session(process["pid"]) == entry["pid"]], 6.0)


def connected(site: Site, client: int) -> bool:
    """Whether the running SuperNode has logged its node id."""
    entry = recorded(site, f"client-{client}") or {}
    node = entry.get("supernode")
    if not node or not living(entry) or not living(node):
        return False
    with open(site.log(f"client-{client}"), "rb") as file:
        file.seek(node["log_from"])
        return LET_IN in file.read(1_000_000)


def _wait_online(site: Site, clients: int, until: float, timeout: float) -> None:
    wait_for(lambda: all(connected(site, client) for client in range(clients)), until - time.monotonic())
    late = [client for client in range(clients) if not connected(site, client)]
    while not late:
        status = node_status(site)
        if all(status.get(client) == "online" for client in range(clients)):
            return
        if time.monotonic() > until:
            late = [client for client in range(clients) if status.get(client) != "online"]
    logs = f"{tail(site.log('fork-server'))}\n{tail(site.log(f'client-{late[0]}'))}"
    raise FederationError(f"clients {late} were not online within {timeout:g} s; {logs}")


def stop(site: Site) -> None:
    """Stop everything of the site: nodes first, so they can deregister, then the SuperLink, then the rest."""
    if site.folder.exists():
        site.prepare(certify=False)
        with in_turn(site.folder):
            _stop(site)


def _stop(site: Site) -> None:
    names = [path.stem for path in sorted((site.folder / "processes").glob("*.json"))]
    entries = {name: entry for name in names if (entry := recorded(site, name)) and living(entry)}
    everything = members(site, [entry["pid"] for entry in entries.values()])
    end([entry for name, entry in entries.items() if name != "superlink"], 8.0)
    end([entry for name, entry in entries.items() if name == "superlink"], 8.0)
    end([process for process in everything + members(site) if living(process)], 1.0)
    for name in names:
        site.process(name).unlink(missing_ok=True)


def running(site: Site) -> dict[str, int]:
    """Running: "superlink", "client-<i>" (its supervisor), "client-<i>.supernode", "client-<i>.worker" -> pid."""
    found = {}
    for path in sorted((site.folder / "processes").glob("*.json")):
        entry = read_json(path, _DELETE)
        parts = {path.stem: entry} | {f"{path.stem}.{name}": entry.get(name) for name in ("supernode", "worker")}
        found.update({name: pid for name, part in parts.items() if (pid := living(part))})
    return found


def node_status(site: Site) -> dict[int, str]:
    """Each registered client's status at the SuperLink: registered, online or offline.

    A node that was killed counts as online until its last heartbeat is a minute old, or until it deregisters.
    """
    nodes = {int(node["node-id"]): node["status"] for node in flwr(site, "supernode", "list", CONNECTION)["nodes"]}
    return {c: nodes[entry["node_id"]] for c, entry in site.registry().items() if entry["node_id"] in nodes}


def _toml(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    raise ValueError(f"run_config[{name!r}] must be a bool, int, finite float or string; got {value!r}.")


def submit(site: Site, app_folder: str | os.PathLike[str], run_config: Mapping[str, object] | None = None) -> int:
    """Start a run of the app; returns its run id. Keys of `run_config` must exist in the app's own configuration."""
    app = Path(app_folder).absolute()
    site.hide(app)
    arguments = ["run", str(app), CONNECTION]
    if run_config:
        path = site.folder / "run-config.toml"
        lines = [f"{json.dumps(name)} = {_toml(name, value)}" for name, value in run_config.items()]
        write_whole(path, "\n".join(lines).encode() + b"\n")
        arguments += ["--run-config", str(path)]
    return int(flwr(site, *arguments)["run-id"])


def run_status(site: Site, run_id: int) -> Status:
    """A run's state. `flwr run` exits with 0 even if the run fails, so this is what counts."""
    (run,) = flwr(site, "list", CONNECTION, "--run-id", str(run_id))["runs"]
    state, _, sub = run["status"].partition(":")
    return Status(sub or state, run["status-details"])


def stop_run(site: Site, run_id: int) -> None:
    """Stop a run that has not ended."""
    flwr(site, "stop", str(run_id), CONNECTION)

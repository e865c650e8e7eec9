"""One client's processes: its SuperNode and its worker, restarted when they die, and forks for each message.

The SuperNode restarts within a second of a kill. If a client process dies without an answer, or exceeds the deadline,
its SuperNode is restarted too: otherwise it would accept no message for a minute, or forever if the client hangs, since
a hanging process keeps sending heartbeats.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from performative._base.files import write_whole
from performative.live.dispatch import WORKER, receive_exactly
from performative.live.limits import LARGEST
from performative.live.loopback.commands import COMMANDS, environment, guarded
from performative.live.loopback.logs import is_long, shorten
from performative.live.loopback.process_table import MARK, identity
from performative.live.loopback.processes import free_port
from performative.live.loopback.shims import FORK_SERVER
from performative.live.loopback.site import LET_IN, REFUSED, Site
from performative.live.loopback.upstream import PINNED, guard

CLIENT = "PERFORMATIVE_CLIENT"

# Commands that are forked instead of started; the SuperNode too, so a killed one is back immediately.
FORKED = ("flwr-clientapp", "flower-superexec", "flower-supernode")
# What the worker is called among a supervisor's children; forked too, it shares what is imported with the others.
WORK = "worker"

SHORTEST_PAUSE, LONGEST_PAUSE = 0.2, 5.0  # seconds between restarts of what keeps dying
STEADY = 10.0  # a process that lived this long restarts without delay
GENTLY = 6.0  # Flower exits by itself within 5 s of a TERM


def rename_process(name: str) -> None:
    """Set the name shown in `ps` and `top`; otherwise all forks would look like the keeper."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(15, name.encode()[:15], 0, 0, 0)  # PR_SET_NAME


@dataclass
class Child:
    """A process of the supervisor: its kind, how to answer the requester, and its deadline."""

    kind: str
    born: float
    said: int | None = None  # read end of a pipe: a byte in it means that the command ended by itself
    asked: socket.socket | None = None
    until: float | None = None
    orphan: bool = False  # of a SuperNode that has ended


@dataclass
class Kept:
    """A process that is restarted when it ends."""

    start: Callable[[], int]
    pid: int | None = None
    pause: float = SHORTEST_PAUSE
    due: float = 0.0


@dataclass
class Supervisor:
    """One client's processes. Everything happens in one thread, since it forks."""

    site: Site
    client: int
    settings: Mapping[str, Any]
    commands: Mapping[str, Callable[[], object]]  # what is forked; {} if every process is started fresh
    deregister: Callable[[Site, int], None]
    children: dict[int, Child] = field(default_factory=dict)
    kept: dict[str, Kept] = field(default_factory=dict)
    log_from: int = 0
    leaving: float | None = None

    @property
    def name(self) -> str:
        return f"client-{self.client}"

    def run(self) -> None:
        """Run until TERM, then stop all processes of this client, including this one."""
        os.setsid()
        rename_process(f"{self.name} forks")
        log = os.open(self.site.log(self.name), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for descriptor, place in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(descriptor, place)
        self.waking, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        self.listener = self.listen() if self.commands else None
        self.kept["supernode"] = Kept(self.start_supernode)
        if self.settings["worker"]:
            self.kept[WORK] = Kept(lambda: self.fork(WORK, self.settings["worker"], self.environment()))
        while not (self.leaving and (not self.children or time.monotonic() > self.leaving)):
            self.step()
        self.site.process(self.name).unlink(missing_ok=True)
        os.killpg(0, signal.SIGKILL)  # whatever is left of this client, including this process

    def say(self, text: str) -> None:
        print(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {self.name}: {text}", flush=True)

    def step(self) -> None:
        """Wait for the next event, then handle everything that is due."""
        now = time.monotonic()
        times = [kept.due for kept in self.kept.values() if kept.pid is None and not self.leaving]
        times += [child.until for child in self.children.values() if child.until is not None]
        times += [self.leaving] if self.leaving else []
        asking = {child.asked: pid for pid, child in self.children.items() if child.asked}
        watched: list[Any] = [self.waking, *asking, *([self.listener] if self.listener else [])]
        ready, _, _ = select.select(watched, [], [], max(0.0, min(times) - now) if times else None)
        if self.waking in ready:
            self.obey(os.read(self.waking, 4096))
        for asked, pid in asking.items():
            if asked in ready and not asked.recv(1):  # the requester is gone, so kill the work
                asked.close()
                self.children[pid].asked = None
                os.kill(pid, signal.SIGKILL)
        if self.listener in ready:
            self.answer()
        self.reap()
        self.shorten_log()
        now = time.monotonic()
        for pid, child in self.children.items():
            if child.until is not None and now > child.until:
                self.say(f"{child.kind} (pid {pid}) exceeded its deadline after {now - child.born:.1f} s and is killed")
                child.until = None
                os.kill(pid, signal.SIGKILL)
        if not self.leaving:
            self.keep(now)

    def obey(self, numbers: bytes) -> None:
        if signal.SIGTERM in numbers or signal.SIGINT in numbers:
            self.leaving = time.monotonic() + GENTLY
            for pid in self.children:
                os.kill(pid, signal.SIGTERM)
        elif signal.SIGHUP in numbers:
            self.renew("the SuperLink was restarted")

    def renew(self, why: str) -> None:
        """Restart the SuperNode: gently, so it deregisters; it is killed if that takes too long."""
        node = self.kept["supernode"]
        node.pause, node.due = SHORTEST_PAUSE, 0.0
        if node.pid is not None:
            self.say(f"the SuperNode is restarted: {why}")
            self.children[node.pid].until = time.monotonic() + GENTLY
            os.kill(node.pid, signal.SIGTERM)

    def keep(self, now: float) -> None:
        """Start what should be running and is not."""
        for kept in self.kept.values():
            if kept.pid is None and now >= kept.due:
                kept.pid = kept.start()
                self.record()

    def record(self) -> None:
        parts: dict[str, Any] = {name: identity(kept.pid) for name, kept in self.kept.items() if kept.pid is not None}
        if "supernode" in parts:
            parts["supernode"]["log_from"] = self.log_from
        write_whole(self.site.process(self.name), json.dumps(identity(os.getpid()) | parts).encode())

    def reap(self) -> None:
        """Handle children that ended."""
        while self.children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            child = self.children.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            complete = False
            if child.said is not None:
                with contextlib.suppress(BlockingIOError):  # a process it left behind still has the pipe open
                    complete = os.read(child.said, 1) != b""
                os.close(child.said)
            if child.asked:
                with contextlib.suppress(OSError):
                    child.asked.sendall(struct.pack("<i", code if code >= 0 else 128 - code))
                child.asked.close()
            for name, kept in self.kept.items():
                if kept.pid == pid:
                    self.ended(name, kept, child, code)
            if child.kind == "flwr-clientapp" and not (complete or child.orphan or self.leaving):
                # It will not reply, and the SuperNode would wait a minute for a reply before taking a new message.
                self.renew(f"a client process (pid {pid}) died before it answered")

    def ended(self, name: str, kept: Kept, child: Child, code: int) -> None:
        """Restart a process that should be running, with increasing delay if it keeps dying."""
        now = time.monotonic()
        steady = now - child.born > STEADY
        kept.pause = SHORTEST_PAUSE if steady else min(LONGEST_PAUSE, 2 * kept.pause)
        kept.pid, kept.due = None, now if steady or code == 0 else now + kept.pause
        if name == "supernode" and self.site.joined and code >= 0 and not self.leaving and not self.let_in():
            # It retries forever while the server is unreachable; so it was rejected, and trying again would not help.
            self.say("the server rejects this node: it is not approved, or no longer")
            write_whole(self.site.folder / REFUSED, json.dumps({"time": time.time()}).encode())
            self.obey(bytes([signal.SIGTERM]))
            return
        if not self.leaving:
            self.say(f"{name} exited with {code} after {now - child.born:.1f} s; it is restarted")
        if name == "supernode":  # its processes notice on their own, unless they hang
            for left in self.children.values():
                if left.kind in FORKED:
                    left.orphan, left.until = True, now + GENTLY

    def let_in(self) -> bytes:
        """The line in which the last SuperNode logged that the server accepted it; b"" if there is none."""
        with open(self.site.log(self.name), "rb") as file:
            file.seek(self.log_from)
            lines = file.read(1_000_000).splitlines(keepends=True)
        return next((line for line in lines if LET_IN in line), b"")

    def shorten_log(self) -> None:
        """Shorten a log that is too long, but keep the line that says that the SuperNode was accepted."""
        said = self.let_in() if is_long(self.site.log(self.name)) else b""
        if shorten(self.site.log(self.name)):
            self.log_from = 0
            os.write(1, said)
            self.record()

    def listen(self) -> socket.socket:
        path = self.site.sockets / f"{self.name}.forks"
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen(16)
        return listener

    def answer(self) -> None:
        """Handle a shim's request for a process."""
        assert self.listener is not None
        asked, _ = self.listener.accept()
        asked.settimeout(5.0)
        files: list[int] = []
        try:
            head, files, _, _ = socket.recv_fds(asked, 4, 3)
            (length,) = struct.unpack("<I", head)
            if (said := receive_exactly(asked, length)) is None:
                raise ConnectionError("a shim disconnected during its request")
            name, arguments, environ, folder = json.loads(said.decode("utf-8", "surrogateescape"))
            if name not in self.commands or len(files) != 3:
                raise ValueError(f"{name!r} is not served here")
            self.fork(name, [name, *arguments], environ, folder, files, asked)
        except (OSError, ValueError, struct.error) as wrong:
            self.say(f"a request for a process was rejected: {wrong}")
            asked.close()
        finally:
            for descriptor in files:
                os.close(descriptor)

    def environment(self) -> dict[str, str]:
        """The environment of this client's processes."""
        own = environment(self.site, self.site.node_home(self.client))
        own |= {MARK: str(self.site.folder), CLIENT: str(self.client), LARGEST: str(self.settings["largest"])}
        if self.listener:
            own["PATH"] = os.pathsep.join([str(self.site.shims), own["PATH"]])
            own[FORK_SERVER] = str(self.site.sockets / f"{self.name}.forks")
        if self.settings.get("pinned"):
            own[PINNED] = self.settings["pinned"]
        if self.settings["worker"]:
            own[WORKER] = str(self.site.sockets / f"{self.name}.worker")
        return own

    def start_supernode(self) -> int:
        """Start a SuperNode with this client's key, on a free port for its own processes."""
        self.log_from = self.site.log(self.name).stat().st_size
        data = self.settings.get("data")
        told = f'client={self.client} state="{self.site.state(self.client)}"' + (f' data="{data}"' if data else "")
        arguments = [
            *("flower-supernode", "--superlink", self.site.address or self.site.here),
            *("--root-certificates", str(self.site.authority)),
            *("--auth-supernode-private-key", str(self.site.key(self.client))),
            *("--host", "127.0.0.1", "--port", str(free_port())),
            *("--node-config", told),
        ]
        return self.fork("supernode", arguments, self.environment())

    def fork(
        self,
        kind: str,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        folder: str | None = None,
        files: Sequence[int] = (),
        asked: socket.socket | None = None,
    ) -> int:
        """Start a child that runs the given command: from the imports here, or otherwise from its own file."""
        said, end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        born = time.monotonic()
        sys.stdout.flush()
        # A signal to a child that still has our handlers would reach us through the wakeup pipe.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = self.become(kind, list(arguments), environ, folder, files)
                os.write(end, b".")
            except BaseException:  # a fork must never continue as if it were the supervisor
                traceback.print_exc()
            finally:
                with contextlib.suppress(Exception):
                    sys.stdout.flush()
                    sys.stderr.flush()
                os._exit(code)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
        os.close(end)
        deadline = self.settings["deadline"] if kind == "flwr-clientapp" else None
        self.children[pid] = Child(kind, born, said, asked, born + deadline if deadline else None)
        return pid

    def become(
        self, kind: str, arguments: list[str], environ: Mapping[str, str], folder: str | None, files: Sequence[int]
    ) -> int:
        """In the child: drop the supervisor's state, then run."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
        if self.listener:
            self.listener.close()
        for child in self.children.values():
            if child.asked:
                child.asked.close()
        for place, descriptor in enumerate(files):
            os.dup2(descriptor, place)
        os.chdir(folder or self.site.folder)
        os.environ.clear()
        os.environ.update(environ)
        name = "flower-supernode" if kind == "supernode" else kind
        if kind == "supernode":
            self.deregister(self.site, self.client)
        if name not in self.commands:
            words = [*guarded(name), *arguments[1:]] if kind == "supernode" else arguments
            os.execvpe(words[0], words, dict(environ))
        rename_process(f"{self.client} {name}")
        if "numpy" in sys.modules:  # a fresh process would have drawn a fresh seed
            sys.modules["numpy"].random.seed()
        sys.argv = [str(COMMANDS / name), *arguments[1:]]
        guard(name)
        try:
            self.commands[name]()
        except SystemExit as leaving:
            if leaving.code is not None and not isinstance(leaving.code, int):
                print(leaving.code, file=sys.stderr)
                return 1
            return leaving.code or 0
        return 0

"""One request on a client's machine: passed to the warm worker if there is one, otherwise handled in place."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from performative.live.telling import tell_failure
from performative.live.wire import decode, encode

# The socket of this node's worker, and the folder of the member's tables.
WORKER = "PERFORMATIVE_WORKER"
DATA = "PERFORMATIVE_DATA"
# A frame is its length, then its bytes.
_PREFIX = 8
_LONGEST = 1 << 34


class Failed(RuntimeError):
    """What the server is told about an error in the client's program."""


def dispatch_request(
    make: Callable[[], Any], app: Path, client: int, folder: Path, request: bytes, seconds: float
) -> bytes:
    """Answer a request within this many seconds.

    Flower starts a process for each message. If a worker keeps the program compiled, that process only forwards bytes;
    if there is none, or it died, the work is done here: the same answer, later.
    """
    if seconds <= 0:
        raise TimeoutError(
            f"the request had expired {-seconds:.0f} s before it arrived. If every request has, this machine's clock "
            "is ahead of the server's: synchronize both over the network."
        )
    path, until = os.environ.get(WORKER), time.monotonic() + seconds
    if path:
        reply = _ask_worker(path, app, client, folder, request, until)
        if reply is not None:
            return reply
    if (left := until - time.monotonic()) <= 0:
        raise TimeoutError("the deadline passed before the work could begin")
    from performative.live.member import Member

    try:
        with _alarm(left):
            return Member(make(), client, folder, os.environ.get(DATA)).answer(request)
    except Exception as error:
        # Flower sends the text of this error to the server; its cause is in the node's own log.
        raise Failed(tell_failure(error)) from error


def _ask_worker(path: str, app: Path, client: int, folder: Path, request: bytes, until: float) -> bytes | None:
    """The worker's answer; None if there is no worker. One that takes too long is killed, and restarted by its keeper:
    it could not be trusted with the next request."""
    about = {"app": str(app), "client": client, "folder": str(folder), "data": os.environ.get(DATA)}
    dispatch = encode(about, {"request": np.frombuffer(request, np.uint8)})
    worker = None
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(max(0.01, until - time.monotonic()))
        try:
            line.connect(path)
            worker = _pid_of(line)
            send_frame(line, dispatch)
            frame = receive_frame(line, until)
        except TimeoutError:
            if worker is not None:
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
            raise TimeoutError("no answer before the round's end; the worker was killed") from None
        except OSError:
            return None
    if frame is None:
        return None
    told, arrays = decode(frame)
    if told.get("error"):
        raise Failed(told["error"])
    return arrays["reply"].tobytes()


def _pid_of(line: socket.socket) -> int | None:
    """The process at the other end."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    return int.from_bytes(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], "little") or None


def send_frame(line: socket.socket, content: bytes) -> None:
    line.sendall(len(content).to_bytes(_PREFIX, "little") + content)


def receive_frame(line: socket.socket, until: float | None = None) -> bytes | None:
    """The next frame, None if the other end has closed. `until` bounds the wait for all of it."""
    head = receive_exactly(line, _PREFIX, until)
    if head is None or (length := int.from_bytes(head, "little")) > _LONGEST:
        return None
    return receive_exactly(line, length, until)


def receive_exactly(line: socket.socket, count: int, until: float | None = None) -> bytes | None:
    """Exactly `count` bytes, None if the other end closes first."""
    parts, left = [], count
    while left:
        if until is not None:
            if (seconds := until - time.monotonic()) <= 0:
                raise TimeoutError
            line.settimeout(seconds)
        part = line.recv(min(left, 1 << 20))
        if not part:
            return None
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise after this many seconds. Only the main thread can be interrupted; others rely on their caller."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: object) -> None:
        raise TimeoutError("no answer before the round's end")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(0.01, seconds))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

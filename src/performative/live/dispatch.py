"""One request on a client's machine: given to the warm worker where there is one, else done on the spot."""

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

# Where the worker of this node listens, and the folder of the member's tables.
WORKER = "PERFORMATIVE_WORKER"
DATA = "PERFORMATIVE_DATA"
# A frame is its length, then its bytes.
_PREFIX = 8
_LONGEST = 1 << 34


class Failed(RuntimeError):
    """What the server is told of an error of the client's program."""


def dispatch_request(
    make: Callable[[], Any], app: Path, client: int, folder: Path, request: bytes, seconds: float
) -> bytes:
    """The answer to a request, within so many seconds.

    Flower starts a process for each message. Where a worker keeps the program compiled, that process only carries
    bytes; where there is none, or it is gone, the work is done here: the same answer, later.
    """
    if seconds <= 0:
        raise TimeoutError(
            f"the request was void when it came, by {-seconds:.0f} s. Where every one is, this machine's clock is "
            "ahead of the server's: set both by the network."
        )
    path, until = os.environ.get(WORKER), time.monotonic() + seconds
    if path:
        reply = _ask_worker(path, app, client, folder, request, until)
        if reply is not None:
            return reply
    if (left := until - time.monotonic()) <= 0:
        raise TimeoutError("the time was up before the work could begin")
    from performative.live.member import Member

    try:
        with _alarm(left):
            return Member(make(), client, folder, os.environ.get(DATA)).answer(request)
    except Exception as error:
        # Flower sends the text of this one to the server; what it comes from is in the node's own log.
        raise Failed(tell_failure(error)) from error


def _ask_worker(path: str, app: Path, client: int, folder: Path, request: bytes, until: float) -> bytes | None:
    """The worker's answer; None where there is no worker. One that takes too long is ended, and started anew by its
    keeper: it could not be trusted with the next request."""
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
            raise TimeoutError("no answer before the round's end; the worker was ended") from None
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
    """The next frame, None where the other end is gone. `until` bounds the wait for all of it."""
    head = receive_exactly(line, _PREFIX, until)
    if head is None or (length := int.from_bytes(head, "little")) > _LONGEST:
        return None
    return receive_exactly(line, length, until)


def receive_exactly(line: socket.socket, count: int, until: float | None = None) -> bytes | None:
    """So many bytes, None where the other end is gone before."""
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
    """Raise after so many seconds. Only the main thread can be interrupted so; others are left to their caller."""
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

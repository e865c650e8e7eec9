"""A client that reads no more of a server's answers than it agreed to."""

import threading
from collections.abc import Iterator
from typing import Any

import httpx

from performative.live.limits import TooLong, tell_limit


class Meter:
    """Counts what comes in answers since the last `begin`; where it is more than `limit` bytes, reading ends.

    An answer that claims more in its head is not read at all, and a compressed one neither: nobody knows how long it is
    before it is held.
    """

    def __init__(self, limit: int):
        self.limit = limit
        self._count, self._lock = 0, threading.Lock()

    def begin(self) -> None:
        """Count from nothing."""
        with self._lock:
            self._count = 0

    def watch(self, response: httpx.Response) -> None:
        """A hook of httpx, called once the head of an answer is there."""
        coding = response.headers.get("content-encoding", "identity").lower()
        if coding != "identity":
            raise TooLong(
                f"the server sends an answer compressed by {coding[:20]!r}, and how long it is cannot be known before "
                "it is held; whatever stands before the server must pass answers on as they are"
            )
        told = response.headers.get("content-length", "")
        if told.isdigit():
            self._check(int(told))
        response.stream = _Counted(response.stream, self)

    def add(self, count: int) -> None:
        with self._lock:
            self._count += count
        self._check(0)

    def _check(self, more: int) -> None:
        if self._count + more > self.limit:
            raise TooLong(tell_limit("what the server sends for one message", self._count + more, self.limit))


class _Counted(httpx.SyncByteStream):
    """The bytes of an answer, each piece counted before the next is read."""

    def __init__(self, inner: Any, meter: Meter):
        self._inner, self._meter = inner, meter

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._inner:
            self._meter.add(len(piece))
            yield piece

    def close(self) -> None:
        self._inner.close()

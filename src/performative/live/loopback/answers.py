"""Limits how much a client reads of a server's answers."""

import threading
from collections.abc import Iterator
from typing import Any

import httpx

from performative.live.limits import TooLong, tell_limit


class Meter:
    """Counts the bytes of answers since the last `begin`; raises `TooLong` above `limit` bytes.

    An answer whose headers declare more is not read at all, nor is a compressed one: its length is not known until it
    is in memory.
    """

    def __init__(self, limit: int):
        self.limit = limit
        self._count, self._lock = 0, threading.Lock()

    def begin(self) -> None:
        """Start counting from zero."""
        with self._lock:
            self._count = 0

    def watch(self, response: httpx.Response) -> None:
        """An httpx hook, called once the headers of an answer have arrived."""
        coding = response.headers.get("content-encoding", "identity").lower()
        if coding != "identity":
            raise TooLong(
                f"the server sends an answer compressed with {coding[:20]!r}, whose length is not known until it is in "
                "memory; a proxy in front of the server must not compress answers"
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

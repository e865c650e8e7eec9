"""A gate in front of an HTTP service: non-public paths are only for processes of this user on this machine.

The kernel says which user's socket a local connection comes from (/proc/net/tcp), so no password is needed and none can
be stolen; a connection from another host has no socket here. The service authenticates callers of public paths itself,
but only after it has read the whole request. So the gate looks at the headers first: a body whose declared length
exceeds the limit is refused unread, as is one without a length, and long ones are accepted only from registered keys, a
few at a time from each.
"""

import asyncio
import os
import socket
import struct
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from performative.live.limits import limit_here, tell_limit

# A body of up to this size is accepted from anybody, so that an honest stranger is told why it is rejected.
SMALL = 1 << 16
# Answered by the gate itself, to anybody: it shows that there is a gate.
SIGN = "/gate"
# Paths that take much memory in the service although their requests are short.
HEAVY = ("/pull-object",)
# Long requests and answers of one caller in progress at once; the rest wait. An honest node has two, and as many again
# whose connection broke without the service noticing.
AT_ONCE = 4
# Seconds within which the next piece of a long body must arrive, and within which a whole answer must be received.
_NEXT, _WHOLE = 60.0, 600.0
_ESTABLISHED = "01"
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))

Headers = Mapping[bytes, bytes]


class Gate:
    """An ASGI application in front of another.

    Args:
        passes: the prefix of public paths, None if there are none
        caller: caller(headers) -> the proven key of a known caller, or None; without it nobody is known
    """

    def __init__(self, inner: Any, passes: str | None, caller: Callable[[Headers], bytes | None] | None = None):
        self.inner, self.passes, self.caller = inner, passes, caller
        self.limit = limit_here()
        # An entry lives as long as somebody holds or awaits it.
        self._turns: weakref.WeakValueDictionary[bytes, asyncio.Semaphore] = weakref.WeakValueDictionary()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return await self.inner(scope, receive, send)
        if scope["type"] == "http" and scope["path"] == SIGN:
            return await _answer(send, 204, "")
        if scope["type"] == "http" and self.passes and scope["path"].startswith(self.passes):
            return await self._pass(scope, receive, send)
        ours = await asyncio.to_thread(is_ours, scope.get("client"), scope.get("server"))
        if ours:
            return await self.inner(scope, receive, send)
        if scope["type"] == "http":
            return await _answer(send, 403, "only for the server's own user, on the server's machine")
        return await send({"type": "websocket.close", "code": 1008})

    async def _pass(self, scope: Any, receive: Any, send: Any) -> None:
        """A public path: open to everybody, but not to bodies that would fill the memory."""
        headers = dict(scope["headers"])
        told = headers.get(b"content-length", b"0")
        if b"transfer-encoding" in headers:
            return await _answer(send, 411, tell_limit("a body without a content-length", None, self.limit))
        if not told.isdigit():
            return await _answer(send, 400, "content-length must be a number of bytes")
        length = int(told)
        if length > self.limit:
            return await _answer(send, 413, tell_limit("the body", length, self.limit))
        if length <= SMALL and not scope["path"].endswith(HEAVY):
            return await self.inner(scope, _counted(receive, length, None), send)
        key = await asyncio.to_thread(self.caller, headers) if self.caller else None
        if key is not None:
            turn = self._turns.setdefault(key, asyncio.Semaphore(AT_ONCE))
            async with turn:
                return await self.inner(scope, _counted(receive, length, _NEXT), _within(send))
        if length <= SMALL:  # the service says why it rejects the caller
            return await self.inner(scope, _counted(receive, length, None), send)
        return await _answer(send, 401, f"a body of more than {SMALL} bytes is accepted only from registered members")


def _counted(receive: Any, length: int, seconds: float | None) -> Any:
    """What is received; disconnects if more arrives than was declared, or if nothing arrives for that many seconds."""
    left = length

    async def counted() -> Any:
        nonlocal left
        try:
            async with asyncio.timeout(seconds if left > 0 else None):
                message = await receive()
        except TimeoutError:
            return {"type": "http.disconnect"}
        left -= len(message.get("body", b""))
        return message if left >= 0 else {"type": "http.disconnect"}

    return counted


def _within(send: Any) -> Any:
    """Give up an answer that is not received in time, and its connection."""

    async def timed(message: Any) -> None:
        async with asyncio.timeout(_WHOLE):
            await send(message)

    return timed


async def _answer(send: Any, status: int, words: str) -> None:
    """Answer without waiting for the rest of the request, which is not read."""
    text = words.encode()
    headers = [
        (b"content-type", b"text/plain"),
        (b"content-length", str(len(text)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})


def is_ours(client: Any, server: Any) -> bool:
    """Whether the socket that a connection comes from belongs to this user, or to root, on this machine."""
    return bool(client and server and client[1]) and owner(client, server) in (0, os.getuid())


def owner(client: Any, server: Any) -> int | None:
    """The user whose socket at `client` is connected to `server`; None if nobody has it.

    Only an established socket counts: for a closed one, and one that is not accepted yet, the system does not know the
    owner, and reports 0.
    """
    ends = {(_as_hex(host, client[1]), _as_hex(to, server[1])) for host, to in _forms(client[0], server[0])}
    for table in _TABLES:
        for line in table.read_text().splitlines()[1:] if table.exists() else []:
            fields = line.split()
            if (fields[1], fields[2]) in ends and fields[3] == _ESTABLISHED and int(fields[9]):
                return int(fields[7])
    return None


def _forms(client: str, server: str) -> list[tuple[str, str]]:
    """Both addresses as they are, and an IPv4 pair as an IPv6 socket shows it."""
    plain = client.removeprefix("::ffff:"), server.removeprefix("::ffff:")
    mapped = [(f"::ffff:{plain[0]}", f"::ffff:{plain[1]}")] if "." in plain[0] and "." in plain[1] else []
    return [plain, *mapped]


def _as_hex(host: str, port: int) -> str:
    """An address as written in the kernel's tables: 32-bit words in native byte order."""
    raw = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host.partition("%")[0])
    words = struct.unpack(f"!{len(raw) // 4}I", raw)
    return "".join(f"{struct.unpack('=I', struct.pack('!I', word))[0]:08X}" for word in words) + f":{port:04X}"

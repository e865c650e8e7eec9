"""A gate before an HTTP service: what is not meant for others is for processes of this user on this machine alone.

The kernel says whose socket a local connection comes from (/proc/net/tcp), so no password is needed and none can be
stolen; a connection from another host has no socket here. Paths that are passed on check for themselves who calls.
"""

import asyncio
import os
import socket
import struct
from pathlib import Path
from typing import Any

# The longest body of a request from outside; Flower reads all of it before it looks who sent it.
LARGEST = 1 << 28
# Answered to everybody, by the gate itself: it says that there is one.
SIGN = "/gate"
_ESTABLISHED = "01"
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


class Gate:
    """An ASGI application before another. `passes`: the beginning of paths that everybody may ask for."""

    def __init__(self, inner: Any, passes: str | None):
        self.inner, self.passes = inner, passes

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return await self.inner(scope, receive, send)
        if scope["type"] == "http" and scope["path"] == SIGN:
            return await _answer(send, 204, b"")
        if scope["type"] == "http" and self.passes and scope["path"].startswith(self.passes):
            return await self._pass(scope, receive, send)
        ours = await asyncio.to_thread(is_ours, scope.get("client"), scope.get("server"))
        if ours:
            return await self.inner(scope, receive, send)
        if scope["type"] == "http":
            return await _answer(send, 403, b"for the server's own user, on its own machine")
        return await send({"type": "websocket.close", "code": 1008})

    async def _pass(self, scope: Any, receive: Any, send: Any) -> None:
        """Everybody may ask, but not with a body that fills the memory."""
        told = dict(scope["headers"]).get(b"content-length", b"0")
        if not told.isdigit() or int(told) > LARGEST:
            return await _answer(send, 413, b"the body is too long")
        left = LARGEST

        async def counted() -> Any:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            return message if left >= 0 else {"type": "http.disconnect"}

        return await self.inner(scope, counted, send)


async def _answer(send: Any, status: int, words: bytes) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(words)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": words})


def is_ours(client: Any, server: Any) -> bool:
    """Whether the socket that a connection comes from belongs to this user, or to root, on this machine.

    Only an established one counts: of one that was closed the system has forgotten the owner, and says 0.
    """
    if not client or not server or not client[1]:
        return False
    ends = {(_as_hex(host, client[1]), _as_hex(to, server[1])) for host, to in _forms(client[0], server[0])}
    allowed = {0, os.getuid()}
    for table in _TABLES:
        for line in table.read_text().splitlines()[1:] if table.exists() else []:
            fields = line.split()
            if (fields[1], fields[2]) in ends and fields[3] == _ESTABLISHED and int(fields[9]):
                return int(fields[7]) in allowed
    return False


def _forms(client: str, server: str) -> list[tuple[str, str]]:
    """Both addresses as they are, and an IPv4 pair as an IPv6 socket shows it."""
    plain = client.removeprefix("::ffff:"), server.removeprefix("::ffff:")
    mapped = [(f"::ffff:{plain[0]}", f"::ffff:{plain[1]}")] if "." in plain[0] and "." in plain[1] else []
    return [plain, *mapped]


def _as_hex(host: str, port: int) -> str:
    """An address as the kernel's tables write it: words of 32 bits in the machine's own order."""
    raw = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host.partition("%")[0])
    words = struct.unpack(f"!{len(raw) // 4}I", raw)
    return "".join(f"{struct.unpack('=I', struct.pack('!I', word))[0]:08X}" for word in words) + f":{port:04X}"

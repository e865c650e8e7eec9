"""Ports that processes listen on, from /proc; so it needs Linux."""

import contextlib
import os
import socket
from collections.abc import Iterable
from pathlib import Path

_LISTENS = "0A"


def listening(pids: Iterable[int]) -> list[tuple[int, str, int]]:
    """(process, address, port) of every TCP socket that these processes listen on, in any network namespace."""
    found = []
    for pid in pids:
        mine = _inodes(pid)
        for file, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/net/{file}").read_text().splitlines()[1:]:
                    fields = line.split()
                    if fields[3] == _LISTENS and fields[9] in mine:
                        host, _, port = fields[1].partition(":")
                        found.append((pid, _readable(host, family), int(port, 16)))
    return found


def _inodes(pid: int) -> set[str]:
    """The inodes of a process's sockets."""
    found = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(entry.path)
                if target.startswith("socket:["):
                    found.add(target[8:-1])
    return found


def _readable(digits: str, family: int) -> str:
    """An address from the kernel's 32-bit words, in native byte order."""
    words = [digits[at : at + 8] for at in range(0, len(digits), 8)]
    raw = b"".join(int(word, 16).to_bytes(4, "little") for word in words)
    return socket.inet_ntop(family, raw)

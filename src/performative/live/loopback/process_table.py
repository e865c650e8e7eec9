"""Which processes belong to a site, and how to signal only those.

A process is identified by its pid *and* its start time: a pid that was reused by another program is never signaled.
Reads /proc, so it needs Linux.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from performative.live.loopback.site import Site

MARK = "PERFORMATIVE_SITE"  # in the environment of every process of a site

# Processes that this interpreter started: a child that ended stays a zombie until it is polled.
CHILDREN: list[subprocess.Popen[bytes]] = []


def _stat(pid: int) -> list[str]:
    """Fields of /proc/<pid>/stat from the state on (the name before may contain anything); [] if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    fields = text.rpartition(")")[2].split()
    return [] if fields[0] in "ZX" else fields


def started(pid: int) -> str | None:
    """When the process started, in ticks since boot; None if it has ended or is a zombie."""
    fields = _stat(pid)
    return fields[19] if fields else None


def session(pid: int) -> int | None:
    """The session of the process; None if it has ended."""
    fields = _stat(pid)
    return int(fields[3]) if fields else None


def identity(pid: int) -> dict[str, Any]:
    """What distinguishes this process from a later one with the same pid."""
    return {"pid": pid, "started": started(pid)}


def living(entry: Mapping[str, Any] | None) -> int | None:
    """The pid of a recorded process if that same process is still running, otherwise None."""
    if not entry:
        return None
    for child in [child for child in CHILDREN if child.poll() is not None]:
        CHILDREN.remove(child)
    same = entry["started"] is not None and started(entry["pid"]) == entry["started"]
    return entry["pid"] if same else None


def recorded(site: Site, name: str) -> dict[str, Any] | None:
    """The record of "superlink" or "client-<i>"."""
    path = site.process(name)
    return json.loads(path.read_text()) if path.exists() else None


def send(entry: Mapping[str, Any], number: int) -> bool:
    """Signal a process if it is still the recorded one; a pidfd ensures that its pid is not reused meanwhile."""
    try:
        handle = os.pidfd_open(entry["pid"])
    except ProcessLookupError:
        return False
    try:
        if not living(entry):
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(handle)


def members(site: Site, roots: Iterable[int] = ()) -> list[dict[str, Any]]:
    """Processes of the site: marked in their environment, below a root or a marked one, or in a root's session.

    The environment of a SuperExec cannot be read by its own user; its session or its parent identifies its site.
    """
    mark = f"{MARK}={site.folder}".encode()
    times, parents, sessions = {}, {}, {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))):
            pid = int(entry)
            parents[pid], sessions[pid], times[pid] = int(fields[1]), int(fields[3]), fields[19]
    wanted = set(roots) & times.keys()
    found = {pid for pid in times if pid in wanted or sessions[pid] in wanted}
    for pid in times.keys() - found:
        with contextlib.suppress(OSError):
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.add(pid)
    while below := {pid for pid in times if parents[pid] in found} - found:
        found |= below
    return [{"pid": pid, "started": times[pid]} for pid in sorted(found - {os.getpid()})]


def wait_for(done: Callable[[], object], seconds: float, pause: float = 0.05) -> bool:
    """Poll until `done()` is true or the time is up."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True


def end(entries: Iterable[Mapping[str, Any]], gently: float) -> None:
    """Send TERM, and KILL to what is still running after `gently` seconds."""
    entries = list(entries)
    for number, seconds in ((signal.SIGTERM, gently), (signal.SIGKILL, 5.0)):
        for entry in entries:
            send(entry, number)
        if wait_for(lambda: not any(living(entry) for entry in entries), seconds):
            return

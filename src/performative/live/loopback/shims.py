"""Commands that come first on a node's PATH and pass their work to the node's fork server."""

import shlex
import sys
from collections.abc import Iterable

from performative.live.loopback.certificates import write_private
from performative.live.loopback.commands import command
from performative.live.loopback.site import Site

FORK_SERVER = "PERFORMATIVE_FORK_SERVER"  # the socket that it listens on

# Run without site packages, so it starts within about 20 ms. If nobody listens it becomes the real command.
SHIM = """\
import json, os, socket, struct, sys
name, real, arguments = sys.argv[1], sys.argv[2], sys.argv[3:]
line = socket.socket(socket.AF_UNIX)
try:
    line.connect(os.environ["PERFORMATIVE_FORK_SERVER"])
    said = json.dumps([name, arguments, dict(os.environ), os.getcwd()]).encode("utf-8", "surrogateescape")
    socket.send_fds(line, [struct.pack("<I", len(said))], [0, 1, 2])
    line.sendall(said)
except (OSError, KeyError):
    os.execv(real, [real, *arguments])
code = line.recv(4)
sys.exit(struct.unpack("<i", code)[0] if len(code) == 4 else 1)
"""


def write_shims(site: Site, names: Iterable[str]) -> None:
    """Write a shim for each of these Flower commands."""
    caller = site.shims / "call_fork_server.py"
    write_private(caller, SHIM.encode())
    for name in names:
        words = [sys.executable, "-I", "-S", str(caller), name, command(name)]
        write_private(site.shims / name, f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'.encode())
        (site.shims / name).chmod(0o700)

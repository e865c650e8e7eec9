"""Hosts for tests: network namespaces with addresses of their own, and a router between them that carries one port.

    host 0 (server) 10.N.0.2  --\
    host 1 (member) 10.N.1.2  ---- router 10.N.i.1, lossy_proxy.py on its port; no host can reach another otherwise
    ...

Each host sees its own folder; those of the others are covered by empty file systems.
"""

import json
import os
import shutil
import signal
import string
import subprocess
import sys
import time
from pathlib import Path

import pytest

from performative.live.loopback.process_table import members, send
from performative.live.loopback.site import Site

PORT = 9443
LETTERS = iter(string.ascii_lowercase)  # several networks of one process
PROXY = Path(__file__).with_name("lossy_proxy.py")


def need_namespaces():
    """Skip where this user may not make network namespaces."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("unshare") is None:
        pytest.skip("network namespaces need root, ip and unshare")
    tried = subprocess.run(["ip", "netns", "add", f"pf{os.getpid()}try"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"network namespaces are not allowed here: {tried.stderr.strip()}")
    subprocess.run(["ip", "netns", "del", f"pf{os.getpid()}try"], check=True)


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True)


class Network:
    """`count` members, a server (host 0) and a router."""

    def __init__(self, folder, count):
        self.folder, self.hosts = folder, range(count + 1)
        self.mark = f"{os.getpid() % 10000}{next(LETTERS)}"
        self.net = f"10.{100 + os.getpid() % 100}"
        self.settings = folder / "router.json"
        self.line(delay=0.0, stall=0.0, reset=0.0, cut=[], target=f"{self.address(0)}:{PORT}")
        self.proxy = None

    def name(self, host):
        return f"pf{self.mark}-{host}"

    def address(self, host):
        return f"{self.net}.{host}.2"

    def gateway(self, host):
        """Where a host finds the router."""
        return f"{self.net}.{host}.1"

    def place(self, host):
        return self.folder / f"host-{host}"

    def line(self, **settings):
        """How the router treats what passes."""
        now = json.loads(self.settings.read_text()) if self.settings.exists() else {}
        part = self.settings.with_suffix(".part")
        part.write_text(json.dumps(now | settings))
        part.rename(self.settings)

    def __enter__(self):
        ip("netns", "add", self.name("r"))
        ip("-n", self.name("r"), "link", "set", "lo", "up")
        # Members find the server at an address of the router: the same one from every host.
        ip("-n", self.name("r"), "addr", "add", f"{self.net}.250.1/32", "dev", "lo")
        ip("-n", self.name("r"), "addr", "add", f"{self.net}.251.1/32", "dev", "lo")
        for host in self.hosts:
            self.place(host).mkdir()
            ours, theirs = f"pf{self.mark}r{host}", f"pf{self.mark}h{host}"
            ip("netns", "add", self.name(host))
            pair = ("type", "veth", "peer", "name", theirs, "netns", self.name(host))
            ip("link", "add", ours, "netns", self.name("r"), *pair)
            for space, device, address in (
                (self.name("r"), ours, self.gateway(host)),
                (self.name(host), theirs, self.address(host)),
            ):
                ip("-n", space, "addr", "add", f"{address}/24", "dev", device)
                ip("-n", space, "link", "set", device, "up")
            ip("-n", self.name(host), "link", "set", "lo", "up")
            ip("-n", self.name(host), "route", "add", "default", "via", self.gateway(host))
        words = [sys.executable, str(PROXY), str(PORT), str(self.settings)]
        self.proxy = subprocess.Popen(["ip", "netns", "exec", self.name("r"), *words])
        return self

    def __exit__(self, *_):
        for host in self.hosts:
            for site in self.place(host).glob("*/.federation"):
                self.kill(site.parent)
            ip("netns", "del", self.name(host))
        self.proxy.kill()
        self.proxy.wait()
        ip("netns", "del", self.name("r"))

    @property
    def public(self):
        """Where all members find the server; `moved` after a move."""
        return f"{self.net}.250.1:{PORT}"

    @property
    def moved(self):
        return f"{self.net}.251.1:{PORT}"

    def words(self, host, *command):
        """A command as a host runs it: its own network, and its own folder alone."""
        hidden = [str(self.place(other)) for other in self.hosts if other != host]
        cover = "".join(f"mount -t tmpfs none '{place}' && " for place in hidden)
        script = f'{cover}cd "{self.place(host)}" && exec "$@"'
        return [
            *("ip", "netns", "exec", self.name(host), "unshare", "--mount", "--propagation", "private"),
            *("sh", "-c", script, "sh", *map(str, command)),
        ]

    def federation(self, host, *words, code=0, seconds=280):
        """`performative federation ...` on a host: its JSON."""
        ended = subprocess.run(
            self.words(host, sys.executable, "-m", "performative", "federation", *words, "--json"),
            capture_output=True,
            text=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
        )
        print(f"host {host}: {' '.join(map(str, words))}\n{ended.stdout}{ended.stderr}")
        assert ended.returncode == code, ended.stderr
        return json.loads(ended.stdout.splitlines()[-1])

    def begin(self, host, *words):
        """The same, left to run."""
        words = map(str, words)
        command = self.words(host, sys.executable, "-m", "performative", "federation", *words, "--json")
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def send(self, file, host, to):
        """A file that somebody carries from a host to another."""
        shutil.copy(self.place(host) / file, self.place(to) / file)

    def kill(self, folder):
        """All processes of a site at once, as when the power fails."""
        site = Site.inside(folder)
        for _ in range(3):
            for process in members(site):
                send(process, signal.SIGKILL)
            time.sleep(0.1)

    def listening(self, host):
        """Addresses and ports on which something on a host listens."""
        text = subprocess.run(
            ["ip", "netns", "exec", self.name(host), "cat", "/proc/net/tcp", "/proc/net/tcp6"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        found = set()
        for fields in (line.split() for line in text.splitlines() if "local_address" not in line):
            if fields[3] == "0A":  # listens
                host_hex, _, port = fields[1].partition(":")
                found.add((".".join(str(byte) for byte in bytes.fromhex(host_hex)[::-1]), int(port, 16)))
        return found

"""`performative federation doctor`: diagnose a server or a member's host, with remedies."""

import datetime
import os
import shutil
import ssl
import stat
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path

from performative._base.checkup import Check
from performative.live.journal import read_journal
from performative.live.loopback import processes
from performative.live.loopback.gate import SIGN
from performative.live.loopback.process_table import members
from performative.live.loopback.site import REFUSED, Site
from performative.live.membership.host import may_ask, read_record
from performative.live.membership.sockets import listening
from performative.live.membership.validity import examine_certificates, examine_presented

# Bytes that must be free, and seconds that clocks may differ: Flower rejects a node whose signed time is 5 s ahead, or
# 5 minutes behind, and a request expires at a time of the server's clock.
_ROOM, _APART = 1 << 30, 5.0
_SECRET = ("*.key", "*.seed", "member.json", "invitations.json")
# A member's answers and the keys of a round: private, but nothing that could be replaced.
_STATE = ("memory.bin", "secure.bin")


def examine(app: Path) -> list[Check]:
    """Check a server's or a member's folder and its processes."""
    site = Site.inside(app)
    if not site.folder.exists():
        raise ValueError(f"{app} has no federation yet; start one with `federation up` or `federation join`.")
    made = [*_permissions(site), *_membership(site), _disk(site), *examine_certificates(site), *_versions(site)]
    return [*made, *_server(site), *_ports(site)]


def _permissions(site: Site) -> Iterator[Check]:
    """Only the owner may read secrets."""
    secrets = sorted({path for pattern in (*_SECRET, *_STATE) for path in site.folder.rglob(pattern) if path.is_file()})
    found = False
    for path in [site.folder, *secrets]:
        told = path.stat()
        if told.st_uid != os.getuid():
            found = True
            yield Check("permissions", f"{path} belongs to user {told.st_uid}", f"chown {os.getuid()} {path}")
        elif stat.S_IMODE(told.st_mode) & 0o077:
            found = True
            mode = "700" if path.is_dir() else "600"
            then = "" if path.name in _STATE else "; then replace that secret"
            yield Check("permissions", f"others may read {path}", f"chmod {mode} {path}{then}")
    if not found:
        yield Check("permissions", f"{len(secrets)} secrets are readable only by their owner")


def _membership(site: Site) -> Iterator[Check]:
    """Whether a member can still take part."""
    if not site.joined:
        return
    told = read_record(site)
    name, remedy = told["name"], f"ask the server's owner for a new invitation: `federation invite {told['name']}`"
    if told["left"]:
        yield Check("membership", f"{name} has left the federation", remedy)
    elif not site.key(told["client"]).exists():
        yield Check("membership", f"the key of {name} is missing", f"{remedy}, after `federation expel {name}`")
    elif not (site.folder / REFUSED).exists():
        yield Check("membership", f"{name} is client {told['client']}")
    elif may_ask(site.folder.parent):
        yield Check("membership", f"the server has not approved {name}", f"run `federation approve` there, or {remedy}")
    else:
        yield Check("membership", f"the server no longer accepts {name}", f"if it was expelled, {remedy}")


def _disk(site: Site) -> Check:
    free = shutil.disk_usage(site.folder).free
    text = f"{free / 2**30:.1f} GiB free"
    return Check("disk", text, "" if free >= _ROOM else f"free space in {site.folder}: records need at least 1 GiB")


def _versions(site: Site) -> Iterator[Check]:
    """Compare a member's versions with the server's at the time of the invitation."""
    from performative.live.flower import versions

    here = versions()
    text = ", ".join(f"{name} {number}" for name, number in here.items())
    if not site.joined:
        yield Check("versions", text)
        return
    there = read_record(site)["versions"]
    other = [f"{name}=={there[name]}" for name in here if there.get(name) != here[name]]
    yield Check("versions", text, f"install the server's versions: pip install {' '.join(other)}" if other else "")


def _server(site: Site) -> Iterator[Check]:
    """Whether the server is reachable with its certificate, and how its clock differs."""
    where = site.address if site.joined and site.address else site.here
    if not site.joined and "superlink" not in processes.running(site):
        yield Check("server", "it is not running", "`federation up` starts it")
        return
    if not site.authority.exists():  # said before
        return
    try:
        date = _ask(
            HTTPSConnection(where, timeout=10.0, context=ssl.create_default_context(cafile=str(site.authority)))
        )
    except ssl.SSLCertVerificationError as error:
        yield examine_presented(site, where, error)
        return
    except (OSError, HTTPException) as error:
        remedy = (
            "is the server up, the address correct and the port open to this host?"
            if site.joined
            else "`federation up`"
        )
        yield Check("server", f"{where} cannot be reached: {error}", remedy)
        return
    yield Check("server", f"{where} answers, with its certificate")
    if site.joined and date:
        apart = abs((parsedate_to_datetime(date) - datetime.datetime.now(datetime.UTC)).total_seconds())
        late = apart > _APART
        yield Check("clock", f"{apart:.0f} s from the server's", "synchronize both hosts' clocks" if late else "")
    elif not site.joined:
        lines = read_journal(site.folder / "server")
        ahead = max((line["time"] for line in lines), default=0.0) - time.time()
        found = f"the log's last line is {ahead:.0f} s ahead" if ahead > 1 else "not behind the log"
        yield Check("clock", found, "synchronize this host's clock" if ahead > _APART else "")


def _ask(connection: HTTPConnection) -> str | None:
    """The date in a service's answer; raises OSError if it has no gate."""
    try:
        connection.request("GET", SIGN)
        answer = connection.getresponse()
        if answer.status != 204:
            raise OSError(f"the answer has status {answer.status}; a gate answers 204")
        return answer.getheader("date")
    finally:
        connection.close()


def _ports(site: Site) -> Iterator[Check]:
    """Each port that our processes listen on: who may use it, and whether it is behind a gate."""
    expected = {(site.listen, site.port())} if not site.joined and site.address else set()
    for pid, host, port in sorted(listening([process["pid"] for process in members(site)])):
        place = f"{host}:{port} (process {pid})"
        if (host, port) in expected:
            yield Check("ports", f"{place} is for members: keys and TLS")
        elif not host.startswith("127.") and host != "::1":
            yield Check("ports", f"{place} can be reached from other hosts", f"stop process {pid}, or close the port")
        elif _is_gated(site, host, port):
            yield Check("ports", f"{place} answers only this user")
        else:
            yield Check(
                "ports", f"{place} does not authenticate callers: other users here can use it", f"stop process {pid}"
            )


def _is_gated(site: Site, host: str, port: int) -> bool:
    trusted = ssl.create_default_context(cafile=str(site.authority) if site.authority.exists() else None)
    for connection in (
        HTTPSConnection(host, port, timeout=5.0, context=trusted),
        HTTPConnection(host, port, timeout=5.0),
    ):
        try:
            _ask(connection)
        except (OSError, HTTPException):
            continue
        return True
    return False

"""`performative federation doctor`: what is wrong with a server or a member's host, and what to do about it."""

import dataclasses
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

from performative.live.journal import read_journal
from performative.live.loopback import processes
from performative.live.loopback.certificates import AUTHORITY, RENEW_BEFORE, SERVER, valid_until
from performative.live.loopback.gate import SIGN
from performative.live.loopback.process_table import members
from performative.live.loopback.site import Site
from performative.live.membership.host import read_record
from performative.live.membership.sockets import listening

# Bytes that must be free, and seconds that clocks may differ: Flower refuses a node whose signed time is 5 s ahead, or
# 5 minutes behind, and a request is void at a time of the server's clock.
_ROOM, _APART = 1 << 30, 5.0
_SECRET = ("*.key", "*.seed", "member.json", "invitations.json")


@dataclasses.dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: what was looked at
        found: what was seen
        remedy: what to do, "" where nothing is wrong
    """

    name: str
    found: str
    remedy: str = ""

    @property
    def wrong(self) -> bool:
        return bool(self.remedy)


def examine(app: Path) -> list[Check]:
    """Look at a server's or a member's folder and at its processes."""
    site = Site.inside(app)
    if not site.folder.exists():
        raise ValueError(f"{app} has no federation yet; `federation up` or `federation join` begins one.")
    made = [*_permissions(site), _disk(site), *_certificates(site), *_versions(site)]
    return [*made, *_server(site), *_ports(site)]


def _permissions(site: Site) -> Iterator[Check]:
    """Secrets are for their owner alone."""
    secrets = sorted({path for pattern in _SECRET for path in site.folder.rglob(pattern) if path.is_file()})
    found = False
    for path in [site.folder, *secrets]:
        told = path.stat()
        if told.st_uid != os.getuid():
            found = True
            yield Check("permissions", f"{path} belongs to user {told.st_uid}", f"chown {os.getuid()} {path}")
        elif stat.S_IMODE(told.st_mode) & 0o077:
            found = True
            mode = "700" if path.is_dir() else "600"
            yield Check("permissions", f"others may read {path}", f"chmod {mode} {path}; then change that secret")
    if not found:
        yield Check("permissions", f"{len(secrets)} secrets are for their owner alone")


def _disk(site: Site) -> Check:
    free = shutil.disk_usage(site.folder).free
    text = f"{free / 2**30:.1f} GiB are free"
    return Check("disk", text, "" if free >= _ROOM else f"make room in {site.folder}: records need at least 1 GiB")


def _certificates(site: Site) -> Iterator[Check]:
    remedies = {SERVER: "`federation rotate`", AUTHORITY: "`federation rotate --new-authority`"}
    if site.joined:
        remedies = {AUTHORITY: "ask the server's owner for a new file: `federation invite`"}
    elif site.address is None:
        remedies = dict.fromkeys(remedies, "`federation up` makes new ones")
    now = datetime.datetime.now(datetime.UTC)
    for name, remedy in remedies.items():
        if not (site.certificates / name).exists():
            yield Check("certificates", f"{name} is missing", "`federation up` makes it")
            continue
        until = valid_until(site.certificates / name)
        what = "has ended" if until < now else "ends"
        late = until < now + RENEW_BEFORE
        yield Check("certificates", f"{name} {what} on {until.date()}", remedy if late else "")


def _versions(site: Site) -> Iterator[Check]:
    """A member has what the server had when it was invited."""
    from performative.live.flower import versions

    here = versions()
    text = ", ".join(f"{name} {number}" for name, number in here.items())
    if not site.joined:
        yield Check("versions", text)
        return
    there = read_record(site)["versions"]
    other = [f"{name}=={there[name]}" for name in here if there.get(name) != here[name]]
    yield Check("versions", text, f"install what the server has: pip install {' '.join(other)}" if other else "")


def _server(site: Site) -> Iterator[Check]:
    """Whether the server is reached with its certificate, and what its clock says."""
    where = site.address if site.joined and site.address else site.here
    if not site.joined and "superlink" not in processes.running(site):
        yield Check("server", "it does not run", "`federation up` starts it")
        return
    try:
        date = _ask(
            HTTPSConnection(where, timeout=10.0, context=ssl.create_default_context(cafile=str(site.authority)))
        )
    except ssl.SSLCertVerificationError as error:
        yield Check(
            "server", f"{where} shows another certificate: {error.verify_message}", "ask its owner; do not join"
        )
        return
    except (OSError, HTTPException) as error:
        remedy = (
            "is the server up, the address right, and the port open to this host?" if site.joined else "`federation up`"
        )
        yield Check("server", f"{where} is not reached: {error}", remedy)
        return
    yield Check("server", f"{where} answers, with its certificate")
    if site.joined and date:
        apart = abs((parsedate_to_datetime(date) - datetime.datetime.now(datetime.UTC)).total_seconds())
        late = apart > _APART
        yield Check(
            "clock", f"{apart:.0f} s from the server's", "set both hosts' clocks by the network" if late else ""
        )
    elif not site.joined:
        lines = read_journal(site.folder / "server")
        ahead = max((line["time"] for line in lines), default=0.0) - time.time()
        found = f"the log's last line is {ahead:.0f} s ahead" if ahead > 1 else "not behind the log"
        yield Check("clock", found, "set this host's clock by the network" if ahead > _APART else "")


def _ask(connection: HTTPConnection) -> str | None:
    """The date that a service answers with; OSError where it has no gate."""
    try:
        connection.request("GET", SIGN)
        answer = connection.getresponse()
        if answer.status != 204:
            raise OSError(f"it answers {answer.status} where a gate answers 204")
        return answer.getheader("date")
    finally:
        connection.close()


def _ports(site: Site) -> Iterator[Check]:
    """Each port that a process of ours listens on: for whom it is, and whether a gate is before it."""
    expected = {(site.listen, site.port())} if not site.joined and site.address else set()
    for pid, host, port in sorted(listening([process["pid"] for process in members(site)])):
        place = f"{host}:{port} (process {pid})"
        if (host, port) in expected:
            yield Check("ports", f"{place} is for members: keys and TLS")
        elif not host.startswith("127.") and host != "::1":
            yield Check("ports", f"{place} can be reached from other hosts", f"stop process {pid}, or close the port")
        elif _is_gated(site, host, port):
            yield Check("ports", f"{place} answers to this user alone")
        else:
            yield Check(
                "ports", f"{place} asks nobody who they are: other users here can use it", f"stop process {pid}"
            )


def _is_gated(site: Site, host: str, port: int) -> bool:
    trusted = ssl.create_default_context(cafile=str(site.authority))
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

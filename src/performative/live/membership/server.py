"""The server's side: where it listens, whom it invites, approves and expels, and its certificates."""

import hashlib
import ipaddress
import json
import re
import secrets
import time
from pathlib import Path
from typing import Any

from performative._base.files import in_turn, write_whole
from performative.live.journal import Journal
from performative.live.loopback import processes
from performative.live.loopback.certificates import (
    AUTHORITY,
    SERVER,
    ends_soon,
    is_signed_by_authority,
    make_authority,
    names_in,
    renew_server,
    valid_until,
)
from performative.live.loopback.commands import FederationError, flwr
from performative.live.loopback.site import CONNECTION, EVERYWHERE, Site
from performative.live.membership.papers import (
    JOIN,
    NAME,
    Invitation,
    fingerprint,
    proof_of,
    read_request,
    text_of,
    write_paper,
)
from performative.live.server_store import is_held

_DAY = 86_400.0
_HOST = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*")


def server_site(app: Path) -> Site:
    """The site of a federation whose members have hosts of their own."""
    site = Site.inside(app)
    if site.joined:
        raise ValueError(f"{app} is a member's folder; this command is for the folder of the federation's server.")
    if site.address is None:
        raise ValueError(
            f"{app} has no address at which members could find it; give it one with: performative federation up --app "
            f"{app} --address HOST:PORT"
        )
    return site


def set_address(app: Path, address: str, listen: str | None) -> bool:
    """Let the server be found at host:port, and listen there; True where it is another place than before."""
    site, (host, port) = Site.inside(app), read_address(address)
    if site.joined:
        raise ValueError(f"{app} is a member's folder; `performative federation join` starts its node.")
    if listen is None:
        listen = host if _is_address(host) else EVERYWHERE
    elif not _is_address(listen):
        raise ValueError(f"--listen must be an IPv4 address of this machine, or {EVERYWHERE} for all; got {listen!r}.")
    before = (site.address, site.listen)
    if before == (address, listen):
        return False
    if site.address is None and site.registry():
        raise ValueError(
            f"--address: the nodes in {app} are this machine's own. Members on other hosts need a federation of their "
            "own: `federation down`, then give it another folder."
        )
    processes.stop(site)
    site.connect(port, address, listen)
    if is_signed_by_authority(site.certificates) and not set(site.names) <= names_in(site.certificates / SERVER):
        renew_server(site.certificates, site.names)
    site.prepare()
    _journal(app).write("address", address=address, before=before[0])
    return True


def read_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port"."""
    host, _, port = address.rpartition(":")
    if not _HOST.fullmatch(host) or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise ValueError(f"--address must be HOST:PORT, with a name or an IPv4 address as its host; got {address!r}.")
    return host, int(port)


def _is_address(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def invite(app: Path, name: str, clients: int, *, client: int | None, days: float, out: Path) -> Invitation:
    """Write an invitation: the first one for a new member, or one that brings a registered member up to date."""
    from performative.live.flower import build_app, versions

    site = server_site(app)
    if not NAME.fullmatch(name):
        raise ValueError(f"NAME must be letters, digits, - and _, at most 40 of them; got {name!r}.")
    if out.exists():
        raise ValueError(f"{out} is there already; give another name with --out, or remove it.")
    if not 0 < days <= 365:
        raise ValueError(f"--days must be above 0 and at most 365; got {days:g}.")
    site.prepare()
    site.hide(app.absolute())
    with in_turn(site.folder):
        registry, open_ones = site.registry(), _read_open(site)
        number = next((i for i, entry in registry.items() if entry["name"] == name), None)
        token = ""
        if number is None:
            number = _choose(name, client, clients, registry, open_ones)
            token = secrets.token_hex(32)
        elif client not in (None, number):
            raise ValueError(f"--client {client}: {name} is registered as client {number}.")
        journal, now = _journal(app), round(time.time(), 3)
        made = Invitation(
            journal.public,
            str(site.address),
            (site.certificates / AUTHORITY).read_text(),
            name,
            number,
            clients,
            token,
            now,
            now + days * _DAY,
            build_app(app),
            versions(),
        )
        write_paper(out, made.facts() | {"signature": journal.sign(text_of(made.facts()))})
        if token:
            open_ones[name] = {"client": number, "token": token, "expires": made.expires, "app": made.app_hash}
            _write_open(site, open_ones)
        else:
            registry[number]["app"] = made.app_hash
            site.write_registry(registry)
        journal.write("invited", member=name, client=number, app=made.app_hash, again=not token)
    return made


def _choose(name: str, client: int | None, clients: int, registry: dict[int, Any], open_ones: dict[str, Any]) -> int:
    """The number of a new member: the one that was asked for, else its own of before, else the lowest free one."""
    taken = set(registry) | {entry["client"] for other, entry in open_ones.items() if other != name}
    free = [number for number in range(clients) if number not in taken]
    if client is not None and client not in free:
        raise ValueError(f"--client {client} must be free; these are: {', '.join(map(str, free)) or 'none'}.")
    if not free:
        raise ValueError(f"all {clients} clients of the problem are taken; `federation expel` frees one.")
    if client is None and name in open_ones:
        return int(open_ones[name]["client"])
    return free[0] if client is None else client


def approve(app: Path, file: Path, told: str | None = None) -> dict[str, Any]:
    """Do what a member's signed request asks for: register its key, or take it out. `told`: its key's fingerprint, as
    the member read it out."""
    site, facts = server_site(app), read_request(file)
    read = fingerprint(facts["public_key"])
    if told is not None and told.replace(" ", "").lower() != read.replace(" ", ""):
        raise ValueError(f"--fingerprint: the key in {file} has the fingerprint {read}; somebody may have changed it.")
    _needs_superlink(site)
    with in_turn(site.folder):
        if facts["kind"] != JOIN:
            return _take_out(app, site, _number_of(site, facts["name"], facts["public_key"]), "left")
        name = facts["name"]
        invited = _check_invited(_read_open(site), facts, _journal(app).public)
        registry, number = site.registry(), int(invited["client"])
        if any(entry["public_key"] == facts["public_key"] for entry in registry.values()):
            raise ValueError(f"the key in {file} is another member's; ask {name} to join with a key of its own.")
        node = _register(site, name, facts["public_key"])
        registry[number] = {
            "public_key": facts["public_key"],
            "name": name,
            "node_id": node,
            "app": invited["app"],
            "identity": facts["identity"],
        }
        site.write_registry(registry)
        _write_open(site, {other: entry for other, entry in _read_open(site).items() if other != name})
        _journal(app).write("approved", member=name, client=number, key=read, app=invited["app"])
    return {"what": "approved", "member": name, "client": number, "fingerprint": read}


def _check_invited(open_ones: dict[str, Any], facts: dict[str, Any], federation: str) -> dict[str, Any]:
    """The invitation that a request answers to."""
    name = facts["name"]
    invited: dict[str, Any] | None = open_ones.get(name)
    if invited is None:
        raise ValueError(f"no invitation of {name} is open: none was written, or it was used; write one.")
    if facts.get("federation") != federation or facts.get("client") != invited["client"]:
        raise ValueError(f"the request of {name} is for another federation, or another client than it was invited as.")
    if not secrets.compare_digest(proof_of(invited["token"], facts), str(facts.get("proof"))):
        raise ValueError(f"the request of {name} does not come from the holder of its last invitation; send a new one.")
    if time.time() > invited["expires"]:
        raise ValueError(f"the invitation of {name} has expired; `federation invite {name}` writes a new one.")
    if facts.get("app") != invited["app"]:
        raise ValueError(f"{name} agreed to another app than it was invited to; send it a new invitation.")
    if not isinstance(facts.get("identity"), str):
        raise ValueError(f"the request of {name} holds no identity; it must be written by `federation join`.")
    return invited


def _register(site: Site, name: str, public_key: str) -> int:
    """Make a key known to Flower; its node id."""
    from cryptography.hazmat.primitives import serialization

    public = serialization.load_pem_public_key(public_key.encode())
    path = site.folder / f"{name}.pub"
    ssh = public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    write_whole(path, ssh + b"\n", private=True)
    try:
        return int(flwr(site, "supernode", "register", str(path), CONNECTION, "--name", name)["node-id"])
    except FederationError as refused:
        if "already in use" not in str(refused):
            raise
        raise ValueError(
            f"the key of {name} was registered before, and such a key is not taken twice; `federation invite {name}`, "
            "and it will make a new one."
        ) from refused
    finally:
        path.unlink()


def expel(app: Path, name: str) -> dict[str, Any]:
    """Take a member out now: its node is refused from this moment on."""
    site = server_site(app)
    with in_turn(site.folder):
        open_ones = _read_open(site)
        if name in open_ones:  # what it was sent is void
            _write_open(site, {other: entry for other, entry in open_ones.items() if other != name})
            if name not in {entry["name"] for entry in site.registry().values()}:
                _journal(app).write("invitation withdrawn", member=name)
                return {"what": "invitation withdrawn", "member": name, "client": open_ones[name]["client"]}
        _needs_superlink(site)
        return _take_out(app, site, _number_of(site, name), "expelled")


def _number_of(site: Site, name: str, public_key: str | None = None) -> int:
    for number, entry in site.registry().items():
        if entry["name"] == name and public_key in (None, entry["public_key"]):
            return number
    known = ", ".join(entry["name"] for entry in site.registry().values()) or "nobody"
    raise ValueError(f"{name} is no member with that key; members: {known}.")


def _take_out(app: Path, site: Site, number: int, what: str) -> dict[str, Any]:
    registry = site.registry()
    entry = registry.pop(number)
    flwr(site, "supernode", "unregister", str(entry["node_id"]), CONNECTION)
    site.write_registry(registry)
    _journal(app).write(what, member=entry["name"], client=number, key=fingerprint(entry["public_key"]))
    return {"what": what, "member": entry["name"], "client": number}


def rotate(app: Path, key_file: Path | None, new_authority: bool) -> dict[str, Any]:
    """A new server certificate, of the same authority or of a new one."""
    site = server_site(app)
    if is_held(site.folder / "server"):
        raise FederationError("a run is at work, and the server must start again; rotate when it has ended.")
    if new_authority:
        make_authority(site.certificates, site.names, keep=True)
    else:
        if ends_soon(site.certificates / AUTHORITY):
            raise ValueError("the authority itself ends within 30 days; begin a new one: `rotate --new-authority`.")
        renew_server(site.certificates, site.names, key_file)
    until = valid_until(site.certificates / SERVER)
    _journal(app).write("certificate", until=until.isoformat(), new_authority=new_authority)
    was_up = "superlink" in processes.running(site)
    if was_up:
        processes.stop(site)
    return {"until": until.date().isoformat(), "restart": was_up, "new_authority": new_authority}


def members(app: Path) -> list[dict[str, Any]]:
    """Who is registered, and who is invited and has not been approved."""
    site = Site.inside(app)
    found = [{"client": i, "member": e["name"], "state": "registered"} for i, e in site.registry().items()]
    known = {entry["member"] for entry in found}
    found += [
        {"client": e["client"], "member": name, "state": "invited" if time.time() < e["expires"] else "expired"}
        for name, e in _read_open(site).items()
        if name not in known
    ]
    return sorted(found, key=lambda entry: int(entry["client"]))


def certificate_warnings(folder: Path) -> list[str]:
    """What to say of certificates that end within 30 days."""
    found = []
    for file, remedy in ((SERVER, "`federation rotate`"), (AUTHORITY, "`federation rotate --new-authority`")):
        if (folder / file).exists() and ends_soon(folder / file):
            found.append(f"{file} ends on {valid_until(folder / file).date()}: {remedy}")
    return found


def changed_for(app: Path) -> list[str]:
    """Names of members that agreed to another app than the one in the folder."""
    registry = Site.inside(app).registry()
    if not any("app" in entry for entry in registry.values()):
        return []
    from performative.live.flower import build_app

    now = hashlib.sha256(build_app(app)).hexdigest()
    return [entry["name"] for entry in registry.values() if entry.get("app", now) != now]


def _needs_superlink(site: Site) -> None:
    if "superlink" not in processes.running(site):
        raise FederationError(
            f"the server does not run; start it with: performative federation up --app {site.folder.parent}"
        )


def _journal(app: Path) -> Journal:
    return Journal(Site.inside(app).folder / "server")


def _read_open(site: Site) -> dict[str, Any]:
    path = site.folder / "invitations.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def _write_open(site: Site, open_ones: dict[str, Any]) -> None:
    write_whole(site.folder / "invitations.json", json.dumps(open_ones, indent=1).encode(), private=True)

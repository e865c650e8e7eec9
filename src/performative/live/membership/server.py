"""The server's side: its address, inviting, approving and expelling members, and its certificates."""

import hashlib
import ipaddress
import json
import re
import secrets
import time
from pathlib import Path
from typing import Any

from performative._base.files import in_turn, write_whole
from performative.live.journal import Journal, read_journal
from performative.live.loopback import processes
from performative.live.loopback.certificates import (
    AUTHORITY,
    AUTHORITY_KEY,
    SERVER,
    decide,
    is_signed_by_authority,
    names_in,
    openssh_file,
    stage_authority,
    stage_server,
)
from performative.live.loopback.commands import FederationError, flwr
from performative.live.loopback.registration import register_member
from performative.live.loopback.site import CONNECTION, EVERYWHERE, Site, names_for, read_json
from performative.live.membership.papers import (
    JOIN,
    NAME,
    Invitation,
    fingerprint,
    is_address,
    proof_of,
    read_request,
    text_of,
    write_paper,
)
from performative.live.membership.rotation import journal_of, log_certificate, server_site, staged_facts
from performative.live.server_store import is_held

_DAY = 86_400.0


def set_address(app: Path, address: str, listen: str | None) -> bool:
    """Set the server's host:port, and listen there; True if it changed."""
    site, (host, port) = Site.inside(app), read_address(address)
    if site.joined:
        raise ValueError(f"{app} is a member's folder; `performative federation join` starts its node.")
    if listen is None:
        listen = host if _is_address(host) else EVERYWHERE
    elif not _is_address(listen):
        raise ValueError(f"--listen must be an IPv4 address of this machine, or {EVERYWHERE} for all; got {listen!r}.")
    before, names = (site.address, site.listen), names_for(address, listen)
    if before == (address, listen) and not _lacks(site, names):
        return False
    if site.address is None and site.registry():
        raise ValueError(
            f"--address: the nodes in {app} run on this machine. Members on other hosts need a separate federation: "
            "`federation down`, then use another folder."
        )
    if is_held(site.folder / "server"):
        raise FederationError("a run is in progress, and the server must restart; set the address after it has ended.")
    processes.check_listen(site, listen, port)
    renews = _lacks(site, names)
    if site.address is None and not (site.certificates / AUTHORITY_KEY).exists():  # no member trusts the authority yet
        stage_authority(site.certificates, names, keep=True)
        renews = True
    elif renews:
        _renew_for(site, address, names)
    moved = before != (address, listen)
    if moved:
        journal_of(app).write("address", address=address, before=before[0])
    else:
        log_certificate(journal_of(app), staged_facts(site, False))
    processes.stop(site)  # first: a call that finds the new address would leave the old server running
    if renews:
        decide(site.certificates)
    if moved:
        site.connect(port, address, listen)
        site.prepare()
    return moved


def _lacks(site: Site, names: list[str]) -> bool:
    """Whether the server's certificate is not for all of these names."""
    return is_signed_by_authority(site.certificates) and not set(names) <= names_in(site.certificates / SERVER)


def _renew_for(site: Site, address: str, names: list[str]) -> None:
    """Issue a server certificate for other names, which does not count yet; the authority's key must be where it was
    written."""
    key = site.certificates / AUTHORITY_KEY
    if not key.is_file():
        again = f"`federation up --address {address}`"
        raise ValueError(
            f"--address: the server's certificate is not for {', '.join(names)}, and {key}, the authority's key, is "
            f"missing; copy it back, and run {again} again. If it is lost: `federation rotate --new-authority`, then "
            f"{again}, then `federation invite NAME` for each member."
        )
    stage_server(site.certificates, names)


def read_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port"."""
    if not is_address(address):
        raise ValueError(f"--address must be HOST:PORT, where HOST is a name or an IPv4 address; got {address!r}.")
    host, _, port = address.rpartition(":")
    return host, int(port)


def _is_address(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def invite(app: Path, name: str, clients: int, *, client: int | None, days: float, out: Path) -> Invitation:
    """Write an invitation: the first one for a new member, or an update for a registered member."""
    from performative.live.flower import build_app, versions

    site = server_site(app)
    if not NAME.fullmatch(name):
        raise ValueError(f"NAME must consist of at most 40 letters, digits, - and _; got {name!r}.")
    if out.exists():
        raise ValueError(f"{out} already exists; pass another name with --out, or remove it.")
    if not 0 < days <= 365:
        raise ValueError(f"--days must be above 0 and at most 365; got {days:g}.")
    if not site.authority.exists():
        raise ValueError(
            f"{site.authority}, by which members know the server, is missing; `federation doctor` says what to do."
        )
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
        journal, now = journal_of(app), round(time.time(), 3)
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
        journal.write("invited", member=name, client=number, app=made.app_hash, again=not token)
        if token:
            open_ones[name] = {"client": number, "token": token, "expires": made.expires, "app": made.app_hash}
            _write_open(site, open_ones)
        else:
            registry[number]["app"] = made.app_hash
            site.write_registry(registry)
        write_paper(out, made.facts() | {"signature": journal.sign(text_of(made.facts()))})
    return made


def _choose(name: str, client: int | None, clients: int, registry: dict[int, Any], open_ones: dict[str, Any]) -> int:
    """The number of a new member: the requested one, otherwise its previous one, otherwise the lowest free one."""
    taken = set(registry) | {entry["client"] for other, entry in open_ones.items() if other != name}
    free = [number for number in range(clients) if number not in taken]
    if client is not None and client not in free:
        raise ValueError(f"--client {client} must be free; free numbers: {', '.join(map(str, free)) or 'none'}.")
    if not free:
        raise ValueError(f"all {clients} clients of the problem are taken; `federation expel` frees one.")
    if client is None and name in open_ones:
        return int(open_ones[name]["client"])
    return free[0] if client is None else client


def approve(app: Path, file: Path, told: str | None = None) -> dict[str, Any]:
    """Carry out a member's signed request: register or remove its key. `told`: its key's fingerprint, as the member
    read it out."""
    site, facts = server_site(app), read_request(file)
    read = fingerprint(facts["public_key"])
    if told is not None and told.replace(" ", "").lower() != read.replace(" ", ""):
        raise ValueError(
            f"--fingerprint: the key in {file} has the fingerprint {read}, not this one. Nothing was "
            "approved; ask the member to read it out again, and if it still differs, invite the member again."
        )
    _needs_superlink(site)
    with in_turn(site.folder):
        if facts["kind"] != JOIN:
            if facts.get("federation") != journal_of(app).public:
                raise ValueError(f"the request in {file} is for another federation.")
            return _take_out(app, site, _number_of(site, facts["name"], facts["public_key"]), "left")
        name = facts["name"]
        invited = _check_invited(_read_open(site), facts, journal_of(app).public)
        registry, number = site.registry(), int(invited["client"])
        begun = registry.get(number, {}).get("public_key") == facts["public_key"]  # and interrupted
        for entry in {} if begun else registry.values():
            if entry["public_key"] == facts["public_key"] or entry.get("identity") == facts["identity"]:
                raise ValueError(f"a key in {file} belongs to another member; ask {name} to join with its own keys.")
        decision = {"member": name, "client": number, "key": read, "app": invited["app"]}
        _log_once(journal_of(app), "approved", decision)
        if not begun:
            registry[number] = {"public_key": facts["public_key"], "name": name, "node_id": None}
            registry[number] |= {"app": invited["app"], "identity": facts["identity"]}
            site.write_registry(registry)
        if registry[number]["node_id"] is None:
            registry[number]["node_id"] = _register(app, site, number, begun)
            site.write_registry(registry)
        _write_open(site, {other: entry for other, entry in _read_open(site).items() if other != name})
    return {"what": "approved", "member": name, "client": number, "fingerprint": read}


def _check_invited(open_ones: dict[str, Any], facts: dict[str, Any], federation: str) -> dict[str, Any]:
    """The invitation that a request answers."""
    name = facts["name"]
    invited: dict[str, Any] | None = open_ones.get(name)
    if invited is None:
        raise ValueError(
            f"{name} has no open invitation: it was used (`federation status` lists the members) or withdrawn, or none "
            f"was written; `federation invite {name}` writes one."
        )
    if facts.get("federation") != federation or facts.get("client") != invited["client"]:
        raise ValueError(f"the request of {name} is for another federation or client number than its invitation.")
    if not secrets.compare_digest(proof_of(invited["token"], facts), str(facts.get("proof"))):
        raise ValueError(f"the request of {name} does not match its last invitation; send a new one.")
    if time.time() > invited["expires"]:
        raise ValueError(f"the invitation of {name} has expired; `federation invite {name}` writes a new one.")
    if facts.get("app") != invited["app"]:
        raise ValueError(f"{name} agreed to a different app than in its invitation; send it a new invitation.")
    if not re.fullmatch("[0-9a-f]{64}", str(facts.get("identity"))):
        raise ValueError(f"the request of {name} has no identity; it must be written by `federation join`.")
    return invited


def _register(app: Path, site: Site, number: int, begun: bool) -> int:
    """Register a member's key with Flower; returns its node id. `begun`: an interrupted call may have done so."""
    registry = site.registry()
    entry = registry[number]
    name, node = entry["name"], None
    try:
        if begun:
            node = register_member(site, registry, number)
        else:
            with openssh_file(site.folder / f"{name}.pub", entry["public_key"]) as path:
                node = int(flwr(site, "supernode", "register", str(path), CONNECTION, "--name", name)["node-id"])
    except FederationError as refused:
        if "already in use" not in str(refused):
            raise FederationError(f"{name} is approved but not registered yet; approve again: {refused}") from refused
    if node is None:
        reason = f"the key of {name} was registered before, and Flower does not accept a key twice"
        facts = {"member": name, "client": number, "key": fingerprint(entry["public_key"])}
        _not_carried_out(journal_of(app), "approved", reason, facts)
        site.write_registry({other: one for other, one in registry.items() if other != number})
        raise ValueError(f"{reason}; run `federation invite {name}`, and the member will create a new one.")
    return node


def expel(app: Path, name: str) -> dict[str, Any]:
    """Remove a member now: its node is rejected immediately."""
    site = server_site(app)
    with in_turn(site.folder):
        open_ones = _read_open(site)
        if name in open_ones:  # its invitation becomes invalid
            is_member = name in {entry["name"] for entry in site.registry().values()}
            if not is_member:
                journal_of(app).write("invitation withdrawn", member=name)
            _write_open(site, {other: entry for other, entry in open_ones.items() if other != name})
            if not is_member:
                return {"what": "invitation withdrawn", "member": name, "client": open_ones[name]["client"]}
        _needs_superlink(site)
        return _take_out(app, site, _number_of(site, name), "expelled")


def _number_of(site: Site, name: str, public_key: str | None = None) -> int:
    for number, entry in site.registry().items():
        if entry["name"] == name and public_key in (None, entry["public_key"]):
            return number
    known = ", ".join(entry["name"] for entry in site.registry().values()) or "nobody"
    what = "a member" if public_key is None else "a member with that key"
    raise ValueError(f"{name} is not {what}; members: {known}.")


def _take_out(app: Path, site: Site, number: int, what: str) -> dict[str, Any]:
    """Remove a member; after an interruption it may be repeated."""
    registry = site.registry()
    entry = registry.pop(number)
    facts = {"member": entry["name"], "client": number, "key": fingerprint(entry["public_key"])}
    _log_once(journal_of(app), what, facts)
    if entry["node_id"] is not None:  # None: the SuperLink's database was lost
        try:
            _unregister(site, entry["node_id"])
        except FederationError as refused:
            _not_carried_out(journal_of(app), what, str(refused), facts)
            raise
    # The registry comes last: while the member is in it, the command can be repeated.
    site.write_registry(registry)
    return {"what": what, "member": entry["name"], "client": number}


def _log_once(journal: Journal, what: str, facts: dict[str, Any]) -> None:
    """Log what is decided about a member's key, before it is done; once, if that was interrupted and is repeated."""
    earlier = [line for line in read_journal(journal.folder) if line["facts"].get("key") == facts["key"]]
    if not earlier or (earlier[-1]["what"], earlier[-1]["facts"]) != (what, facts):
        journal.write(what, **facts)


def _not_carried_out(journal: Journal, what: str, reason: str, facts: dict[str, Any]) -> None:
    """Log that Flower refused what the line before says; nothing has changed."""
    journal.write("not carried out", decision=what, reason=reason, **facts)


def _unregister(site: Site, node: int) -> None:
    """Remove a node from Flower's list, unless it is not there."""
    try:
        flwr(site, "supernode", "unregister", str(node), CONNECTION)
    except FederationError as refused:
        if "Node ID not found" not in str(refused):
            raise


def members(app: Path) -> list[dict[str, Any]]:
    """The registered members, and those invited but not yet approved."""
    site = Site.inside(app)
    found = [{"client": i, "member": e["name"], "state": "registered"} for i, e in site.registry().items()]
    known = {entry["member"] for entry in found}
    found += [
        {"client": e["client"], "member": name, "state": "invited" if time.time() < e["expires"] else "expired"}
        for name, e in _read_open(site).items()
        if name not in known
    ]
    return sorted(found, key=lambda entry: int(entry["client"]))


def changed_for(app: Path) -> list[str]:
    """Names of members that agreed to a different app than the one in the folder."""
    registry = Site.inside(app).registry()
    if not any("app" in entry for entry in registry.values()):
        return []
    from performative.live.flower import build_app

    now = hashlib.sha256(build_app(app)).hexdigest()
    return [entry["name"] for entry in registry.values() if entry.get("app", now) != now]


def _needs_superlink(site: Site) -> None:
    if "superlink" not in processes.running(site):
        raise FederationError(
            f"the server is not running; start it with: performative federation up --app {site.folder.parent}"
        )


def _read_open(site: Site) -> dict[str, Any]:
    return read_json(site.folder / "invitations.json")


def _write_open(site: Site, open_ones: dict[str, Any]) -> None:
    write_whole(site.folder / "invitations.json", json.dumps(open_ones, indent=1).encode(), private=True)

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
from performative.live.archives import finish_archive
from performative.live.journal import Journal, read_journal
from performative.live.loopback import processes
from performative.live.loopback.certificates import (
    AUTHORITY,
    AUTHORITY_KEY,
    SERVER,
    STAGED,
    decide,
    ends_soon,
    finish_issue,
    is_signed_by_authority,
    names_in,
    openssh_file,
    stage_authority,
    stage_server,
    staged,
    valid_until,
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
from performative.live.membership.validity import is_expired
from performative.live.server_store import is_held

_DAY = 86_400.0
# A rotation that has begun, until the server is up with its certificate.
_ROTATION = "rotation.json"


def server_site(app: Path) -> Site:
    """The site of a federation whose members have their own hosts."""
    site = Site.inside(app)
    if site.joined:
        raise ValueError(f"{app} is a member's folder; this command is for the folder of the federation's server.")
    if site.address is None:
        raise ValueError(
            f"{app} has no address at which members could reach it; set one with: performative federation up --app "
            f"{app} --address HOST:PORT"
        )
    return site


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
        _journal(app).write("address", address=address, before=before[0])
    else:
        _log_certificate(_journal(app), _staged_facts(site, False))
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
            if facts.get("federation") != _journal(app).public:
                raise ValueError(f"the request in {file} is for another federation.")
            return _take_out(app, site, _number_of(site, facts["name"], facts["public_key"]), "left")
        name = facts["name"]
        invited = _check_invited(_read_open(site), facts, _journal(app).public)
        registry, number = site.registry(), int(invited["client"])
        begun = registry.get(number, {}).get("public_key") == facts["public_key"]  # and interrupted
        for entry in {} if begun else registry.values():
            if entry["public_key"] == facts["public_key"] or entry.get("identity") == facts["identity"]:
                raise ValueError(f"a key in {file} belongs to another member; ask {name} to join with its own keys.")
        decision = {"member": name, "client": number, "key": read, "app": invited["app"]}
        _log_once(_journal(app), "approved", decision)
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
        _not_carried_out(_journal(app), "approved", reason, facts)
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
                _journal(app).write("invitation withdrawn", member=name)
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
    _log_once(_journal(app), what, facts)
    if entry["node_id"] is not None:  # None: the SuperLink's database was lost
        try:
            _unregister(site, entry["node_id"])
        except FederationError as refused:
            _not_carried_out(_journal(app), what, str(refused), facts)
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


def rotate(app: Path, key_file: Path | None, new_authority: bool) -> dict[str, Any]:
    """Issue a new server certificate, from the same authority or a new one; if `restart`, the server must be started.

    After an interruption, a second call finishes what the first began, and issues nothing else.
    """
    site = server_site(app)
    if is_held(site.folder / "server"):
        raise FederationError("a run is in progress, and the server must restart; rotate after it has ended.")
    begun = _begun(site)
    if not begun or (new_authority and not begun["new_authority"]):
        if new_authority:
            stage_authority(site.certificates, site.names, keep=True)
        else:
            if site.authority.exists() and ends_soon(site.authority):
                raise ValueError(
                    "the authority itself expires within 30 days; create a new one: `rotate --new-authority`."
                )
            stage_server(site.certificates, site.names, key_file)
        restart = "superlink" in processes.running(site) or begun.get("restart", False)
        begun = _staged_facts(site, new_authority) | {"restart": restart}
        write_whole(site.folder / _ROTATION, json.dumps(begun).encode())
    finish_rotation(app)
    if not begun["restart"]:
        end_rotation(app)
    until = valid_until(site.certificates / SERVER).date().isoformat()
    return {"until": until, "restart": begun["restart"], "new_authority": begun["new_authority"]}


def finish_rotation(app: Path) -> None:
    """Log the certificate of a rotation that has begun, stop the server, and put it in place; unless that was done."""
    site = Site.inside(app)
    begun = _begun(site)
    finish_issue(site.certificates)
    if begun and staged(site.certificates) == begun["certificate"]:
        _log_certificate(_journal(app), begun)
        if "superlink" in processes.running(site):
            processes.stop(site)
        decide(site.certificates)


def reissue(app: Path) -> str:
    """Issue the server's certificate again, from the same authority, if it is lost or has expired; returns which."""
    site = server_site(app)
    if is_held(site.folder / "server"):  # a server that runs has read its certificate
        return ""
    if is_signed_by_authority(site.certificates):
        if not is_expired(site.certificates / SERVER):
            return ""
        why = "had expired"
        if is_expired(site.authority):
            raise ValueError(
                f"the authority expired on {valid_until(site.authority).date()}; create a new one: `federation rotate "
                "--new-authority`, then `federation invite NAME` for each member."
            )
    else:
        why = "was lost or damaged"
    stage_server(site.certificates, site.names)
    _log_certificate(_journal(app), _staged_facts(site, False))
    processes.stop(site)
    decide(site.certificates)
    return why


def end_rotation(app: Path) -> None:
    """Record that nothing of a rotation is left to do."""
    (Site.inside(app).folder / _ROTATION).unlink(missing_ok=True)


def _begun(site: Site) -> dict[str, Any]:
    """The rotation that has begun, {} if none has."""
    return read_json(site.folder / _ROTATION, "delete it, then run `federation rotate`")


def _staged_facts(site: Site, new_authority: bool) -> dict[str, Any]:
    """The server certificate that waits for a decision, for the log."""
    until = valid_until(site.certificates / STAGED / SERVER)
    return {"certificate": staged(site.certificates), "until": until.isoformat(), "new_authority": new_authority}


def _log_certificate(journal: Journal, told: dict[str, Any]) -> None:
    """Log a server certificate before it is put in place, once."""
    facts = {name: told[name] for name in ("until", "new_authority", "certificate")}
    if not any((line["what"], line["facts"]) == ("certificate", facts) for line in read_journal(journal.folder)):
        journal.write("certificate", **facts)


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


def _journal(app: Path) -> Journal:
    folder = Site.inside(app).folder / "server"
    finish_archive(folder)
    return Journal(folder)


def _read_open(site: Site) -> dict[str, Any]:
    return read_json(site.folder / "invitations.json")


def _write_open(site: Site, open_ones: dict[str, Any]) -> None:
    write_whole(site.folder / "invitations.json", json.dumps(open_ones, indent=1).encode(), private=True)

"""The member's side: it takes an invitation, asks to be registered, runs its node, and leaves."""

import dataclasses
import hashlib
import io
import json
import shutil
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

from performative._base.files import write_whole
from performative.live.loopback import processes
from performative.live.loopback.certificates import AUTHORITY, make_key, private_folder, valid_until, write_private
from performative.live.loopback.site import FOLDER, LET_IN, REFUSED, Site
from performative.live.membership.papers import JOIN, LEAVE, Invitation, fingerprint, make_request, write_paper
from performative.live.secure.roster import identity_of
from performative.live.sources.tables import TableSource
from performative.live.worker import load_federation

_RECORD, _APP = "member.json", "app.fab"
# Seconds past a round's end after which a client's process is ended by force; seconds that a start may take.
_GRACE, _START = 2.0, 120.0


def member_site(folder: Path) -> Site:
    """The site of a member's folder."""
    site = Site.inside(folder)
    if not site.joined:
        raise ValueError(f"{folder} is no member's folder; `performative federation join INVITATION` makes one.")
    return site


def read_record(site: Site) -> dict[str, Any]:
    """What the invitation said, and what its owner did since."""
    told: dict[str, Any] = json.loads((site.folder / _RECORD).read_text())
    return told


def take(invitation: Invitation, folder: Path, accept: str | None) -> str:
    """Take an invitation into a member's folder; returns what it is: "new", "known" or "changed".

    A new one makes the member's key, and puts the app where its owner can read it. Nothing of the app is run.
    """
    site = Site.inside(folder)
    known = read_record(site) if site.joined else None
    if known is None:
        _check_empty(folder)
    elif known["federation"] != invitation.federation:
        raise ValueError(
            f"{folder} belongs to another federation: the invitation is signed with another key than the first one. "
            "Give another folder, or ask the server's owner."
        )
    elif invitation.made < known["made"]:
        raise ValueError("the invitation is older than the one that is in use; ask for a new one.")
    elif invitation.made == known["made"]:
        return "known"
    elif not invitation.token and (invitation.name, invitation.client) != (known["name"], known["client"]):
        raise ValueError(f"the invitation is for {invitation.name}; this is the folder of {known['name']}.")
    elif invitation.app_hash != known["app"] and (accept is None or not _same(accept, invitation.app_hash)):
        proposed = private_folder(site.folder / "proposed-app")
        _unpack(invitation.app, proposed)
        raise ValueError(
            f"the app has changed: {known['app'][:12]} is now {invitation.app_hash[:12]}. It lies in {proposed}, and "
            f"nothing of it was run; read it, then agree with --accept {invitation.app_hash[:12]}."
        )
    if time.time() > invitation.expires:
        raise ValueError("the invitation has expired; ask for a new one.")
    _write_down(site, folder, invitation, known)
    return "new" if invitation.token else "changed"


def _same(told: str, digest: str) -> bool:
    """At least twelve digits of a hash, as people copy them."""
    return len(told) >= 12 and digest.startswith(told.lower())


def _check_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} is there already, and no member's folder; give another with --app.")


def _write_down(site: Site, folder: Path, invitation: Invitation, known: dict[str, Any] | None) -> None:
    """All that the invitation says, the record last: without it the folder is no member's."""
    if known is not None:
        processes.stop(site)
    private_folder(folder)
    _unpack(invitation.app, folder)
    private_folder(site.folder)
    private_folder(site.certificates)
    write_private(site.authority, invitation.authority.encode())
    write_private(site.folder / _APP, invitation.app)
    _, _, port = invitation.address.rpartition(":")
    site.connect(int(port), invitation.address)
    told = {"data": None, "left": False} | (known or {})
    told |= {
        name: value
        for name, value in dataclasses.asdict(invitation).items()
        if name not in ("app", "authority", "token")
    }
    told |= {"app": invitation.app_hash}
    if invitation.token:
        told |= {"token": invitation.token, "left": False}
        key = site.key(invitation.client)
        key.unlink(missing_ok=True)  # a key that was registered once is not taken twice
        public = make_key(key)
        private_folder(site.state(invitation.client))
        private_folder(site.node_home(invitation.client))
        identity_of(site.state(invitation.client))
        site.write_registry({invitation.client: {"public_key": public, "name": invitation.name, "node_id": None}})
    write_whole(site.folder / _RECORD, json.dumps(told, indent=1).encode(), private=True)


def _unpack(app: bytes, folder: Path, keep: str = FOLDER) -> None:
    """The app's files, for its owner to read; what an earlier one left is taken away."""
    for path in folder.iterdir():
        if path.name != keep:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    try:
        with zipfile.ZipFile(io.BytesIO(app)) as archive:
            for name in archive.namelist():
                if name.startswith(("/", "\\")) or ".." in Path(name).parts or Path(name).parts[0] == keep:
                    raise ValueError(f"the invitation's app has a file {name!r} that would lie outside its folder.")
            archive.extractall(folder)
    except zipfile.BadZipFile:
        raise ValueError("the invitation's app is no bundle; ask for a new one.") from None


def write_request(folder: Path, kind: str, out: Path) -> str:
    """Write a signed request for the server's owner; returns the fingerprint of the member's key."""
    site = member_site(folder)
    told = read_record(site)
    about = {
        "federation": told["federation"],
        "name": told["name"],
        "client": told["client"],
        "app": told["app"],
        "identity": (site.state(told["client"]) / "identity.pub").read_text().strip(),
        "time": round(time.time(), 3),
    }
    made = make_request(kind, site.key(told["client"]), about, told["token"] if kind == JOIN else "")
    write_paper(out, made)
    return fingerprint(made["public_key"])


def start(folder: Path, data: Path | None, address: str | None) -> bool:
    """Run the node; False where the server does not let it in. `data` and `address` are remembered."""
    site = member_site(folder)
    told, client = read_record(site), read_record(site)["client"]
    if told["left"]:
        raise ValueError(f"{told['name']} has left the federation; a new invitation lets it join again.")
    if hashlib.sha256((site.folder / _APP).read_bytes()).hexdigest() != told["app"]:
        raise ValueError(f"{site.folder / _APP} is not the app that was agreed on; take the invitation again.")
    changed = {"data": str(data.absolute())} if data is not None else {}
    if address is not None and address != site.address:
        site.connect(int(address.rpartition(":")[2]), address)
        changed["address"] = address
    if changed:
        told |= changed
        write_whole(site.folder / _RECORD, json.dumps(told, indent=1).encode(), private=True)
        processes.stop(site)
    settings = _settings(folder, site, told)
    let_in = processes.start_node(site, client, settings, _START)
    if let_in:
        _remember_node(site, client)
    return let_in


def _settings(folder: Path, site: Site, told: dict[str, Any]) -> dict[str, Any]:
    """How the node is started. Here the app is run for the first time: its owner has had it to read."""
    made = load_federation(folder / "app.py")
    data = told["data"]
    if isinstance(made.source, TableSource):
        if data is None:
            raise ValueError("--data: the app reads a table of this member; name the folder that holds it.")
        if not Path(data).is_dir():
            raise ValueError(f"--data: {data} is no folder; give the one that holds the member's table.")
    if data is not None and any(character in data for character in "\"'\\\n"):
        raise ValueError(f"--data: the path must hold no quotes or backslashes; got {data}.")
    return {
        "worker": [sys.executable, "-m", "performative.live.worker"],
        "warm": ["performative", "performative.live.flower"],
        "forks": True,
        "deadline": float(made.timeout) + _GRACE,
        "data": data,
        "pinned": str(site.folder / _APP),
    }


def _remember_node(site: Site, client: int) -> None:
    """The number that the server gave: with it a node that was killed can be said off before it comes again."""
    text = site.log(f"client-{client}").read_bytes()
    number = text[text.rfind(LET_IN) + len(LET_IN) :].split(maxsplit=1)[0]
    registry = site.registry()
    registry[client]["node_id"] = int(number.decode().split("\x1b")[0])
    site.write_registry(registry)


def leave(folder: Path, out: Path) -> str:
    """Stop the node now and for good; the request that takes it out of the server's list is written to `out`."""
    site = member_site(folder)
    told = read_record(site)
    if told["left"]:
        raise ValueError(f"{told['name']} has left already.")
    processes.stop(site)
    read = write_request(folder, LEAVE, out)
    write_whole(site.folder / _RECORD, json.dumps(told | {"left": True}, indent=1).encode(), private=True)
    site.key(told["client"]).unlink()  # nobody can be this member any more
    return read


def member_status(folder: Path) -> dict[str, Any]:
    """What runs here, and what the server said last."""
    site = member_site(folder)
    told, here = read_record(site), processes.running(site)
    client = told["client"]
    refused = site.folder / REFUSED
    if told["left"]:
        state = "left"
    elif f"client-{client}" in here:
        state = "up, let in by the server" if processes.connected(site, client) else "up, trying to reach the server"
    else:
        state = "refused by the server: not approved, or expelled" if refused.exists() else "down"
    return {
        "member": told["name"],
        "client": client,
        "state": state,
        "address": site.address,
        "app": told["app"],
        "processes": here,
        "authority_until": valid_until(site.certificates / AUTHORITY).date().isoformat(),
    }


def member_lines(found: dict[str, Any]) -> list[str]:
    """The same for people."""
    return [
        f"{found['member']}, client {found['client']}: {found['state']}",
        f"server at {found['address']}; app {found['app'][:12]}; authority until {found['authority_until']}",
    ]

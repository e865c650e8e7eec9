"""The member's side: accept an invitation, request registration, run the node, and leave."""

import dataclasses
import hashlib
import importlib.util
import io
import json
import shutil
import sys
import time
import zipfile
import zlib
from pathlib import Path
from typing import Any

from performative._base.files import write_whole
from performative.live.limits import largest_message
from performative.live.loopback import processes
from performative.live.loopback.certificates import make_key, private_folder, write_private
from performative.live.loopback.site import FOLDER, LET_IN, REFUSED, Site
from performative.live.membership.papers import (
    JOIN,
    LEAVE,
    Invitation,
    fingerprint,
    is_address,
    make_request,
    write_paper,
)
from performative.live.membership.validity import authority_until, certificate_warnings
from performative.live.secure.roster import identity_of
from performative.live.sources.tables import TableSource
from performative.live.worker import load_federation

_RECORD, _APP = "member.json", "app.fab"
# Seconds past a round's end after which a client's process is killed; seconds that a start may take.
_GRACE, _START = 2.0, 120.0
# An app is code and settings: bundles have at most 10 MB, a small bundle of zeros may unpack to gigabytes.
_MOST_FILES, _MOST_BYTES, _LONGEST_NAME = 10_000, 256 << 20, 255


def member_site(folder: Path) -> Site:
    """The site of a member's folder."""
    site = Site.inside(folder)
    if not site.joined:
        raise ValueError(f"{folder} is not a member's folder; `performative federation join INVITATION` creates one.")
    return site


def read_record(site: Site) -> dict[str, Any]:
    """The contents of the invitation, and later changes by its owner."""
    told: dict[str, Any] = json.loads((site.folder / _RECORD).read_text())
    return told


def take(invitation: Invitation, folder: Path, accept: str | None) -> str:
    """Accept an invitation in a member's folder; returns its kind: "new", "known" or "changed".

    A new one creates the member's key, and unpacks the app for its owner to review. Nothing of the app is run.
    """
    site = Site.inside(folder)
    known = read_record(site) if site.joined else None
    if known is None:
        _check_empty(folder)
    elif known["federation"] != invitation.federation:
        raise ValueError(
            f"{folder} belongs to another federation: the invitation is not signed with the same key as the first. "
            "Give another folder, or ask the server's owner."
        )
    elif invitation.made < known["made"]:
        raise ValueError("the invitation is older than the one in use; ask for a new one.")
    elif invitation.made == known["made"]:
        return "known"
    elif not invitation.token and (invitation.name, invitation.client) != (known["name"], known["client"]):
        raise ValueError(f"the invitation is for {invitation.name}; this is the folder of {known['name']}.")
    elif invitation.app_hash != known["app"] and (accept is None or not _same(accept, invitation.app_hash)):
        proposed = site.folder / "proposed-app"
        shutil.rmtree(proposed, ignore_errors=True)
        _unpack(invitation.app, private_folder(proposed))
        raise ValueError(
            f"the app has changed: {known['app'][:12]} is now {invitation.app_hash[:12]}. It is in {proposed}, and "
            f"none of it was run; review it, then accept it with --accept {invitation.app_hash[:12]}."
        )
    if time.time() > invitation.expires:
        raise ValueError("the invitation has expired; ask for a new one.")
    _write_down(site, folder, invitation, known)
    return "new" if invitation.token else "changed"


def _same(told: str, digest: str) -> bool:
    """Whether `told` is a prefix of the hash with at least twelve digits."""
    return len(told) >= 12 and digest.startswith(told.lower())


def _check_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} already exists and is not a member's folder; pass another with --app.")


def _write_down(site: Site, folder: Path, invitation: Invitation, known: dict[str, Any] | None) -> None:
    """Save the invitation's contents, the record last: without it the folder is not a member's."""
    earlier = frozenset() if known is None else _files_of(site.folder / _APP)
    if known is not None:
        _check_app(invitation.app, folder, earlier)  # before the node stops
        processes.stop(site)
    private_folder(folder)
    _unpack(invitation.app, folder, earlier)
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
        key.unlink(missing_ok=True)  # a key that was registered once is not accepted again
        public = make_key(key)
        private_folder(site.state(invitation.client))
        private_folder(site.node_home(invitation.client))
        identity_of(site.state(invitation.client))
        site.write_registry({invitation.client: {"public_key": public, "name": invitation.name, "node_id": None}})
    write_whole(site.folder / _RECORD, json.dumps(told, indent=1).encode(), private=True)


def _unpack(app: bytes, folder: Path, earlier: frozenset[Path] = frozenset()) -> None:
    """Unpack the app's files for the owner to review. Existing files are removed only if of the `earlier` app."""
    _check_app(app, folder, earlier)
    compiled = {Path(importlib.util.cache_from_source(str(name))) for name in earlier if name.suffix == ".py"}
    old = earlier.union(path for path in compiled if not path.is_absolute())
    folders = {parent for name in old for parent in _folders_of(name)}
    linked = {parent for parent in folders if (folder / parent).is_symlink()}  # what they contain lies elsewhere
    for name in old:
        place = folder / name
        if linked.isdisjoint(name.parents) and (place.is_file() or place.is_symlink()):
            place.unlink()
    for parent in sorted(folders, reverse=True):  # the innermost first
        place = folder / parent
        if linked.isdisjoint((parent, *parent.parents)) and place.is_dir() and not any(place.iterdir()):
            place.rmdir()
    with zipfile.ZipFile(io.BytesIO(app)) as archive:
        archive.extractall(folder)


def _check_app(app: bytes, folder: Path, earlier: frozenset[Path]) -> None:
    """Reject a bundle that is damaged, or that would replace a file that its member has put into the folder."""
    try:
        with zipfile.ZipFile(io.BytesIO(app)) as archive:
            _check_files(archive.infolist(), FOLDER)
            if archive.testzip() is not None:
                raise zipfile.BadZipFile
            for one in archive.infolist():
                content = None if one.is_dir() else archive.read(one)
                if (place := _in_the_way(folder, Path(one.filename), content, earlier)) is not None:
                    raise ValueError(
                        f"{place} is not a file of the earlier app, and the invitation's app would replace it. Nothing "
                        "was changed; move it elsewhere, then join again."
                    )
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError):
        raise ValueError("the invitation's app is not a valid bundle; ask for a new one.") from None


def _in_the_way(folder: Path, name: Path, content: bytes | None, earlier: frozenset[Path]) -> Path | None:
    """What would be lost, or written through, by creating a file, or a folder (no content)."""
    for parent in _folders_of(name):
        place = folder / parent
        if place.is_symlink() or place.is_file():
            return None if parent in earlier else place
    place = folder / name
    if place.is_dir() and not place.is_symlink():
        if content is None:
            return None
        folders = {parent for one in earlier for parent in _folders_of(one)}
        if name not in folders:
            return place
        return next((one for one in place.rglob("*") if one.relative_to(folder) not in earlier | folders), None)
    if name in earlier or not (place.is_symlink() or place.exists()):
        return None
    # An acceptance that was interrupted has written some of these files.
    same = content is not None and place.is_file() and not place.is_symlink() and place.read_bytes() == content
    return None if same else place


def _folders_of(name: Path) -> list[Path]:
    """The folders that a file is in, the outermost first."""
    return list(name.parents)[-2::-1]


def _files_of(bundle: Path) -> frozenset[Path]:
    """The files of the app that was accepted before; none if its bundle is lost."""
    try:
        with zipfile.ZipFile(bundle) as archive:
            return frozenset(Path(one.filename) for one in archive.infolist() if not one.is_dir())
    except (FileNotFoundError, zipfile.BadZipFile):
        return frozenset()


def _check_files(files: list[zipfile.ZipInfo], keep: str) -> None:
    """Reject a bundle that does not unpack to a folder of files, or to far more than an app has."""
    if len(files) > _MOST_FILES or sum(one.file_size for one in files) > _MOST_BYTES:
        raise ValueError(
            f"the invitation's app has more than {_MOST_FILES} files or {_MOST_BYTES >> 20} MiB unpacked; ask for one "
            "without data."
        )
    names = [Path(one.filename) for one in files]
    for one, path in zip(files, names, strict=True):
        if one.filename.startswith(("/", "\\")) or ".." in path.parts or path.parts[:1] in ((), (keep,)):
            raise ValueError(f"the invitation's app has a file {one.filename[:80]!r} outside its folder.")
    whole = {path for one, path in zip(files, names, strict=True) if not one.is_dir()}
    folders = {parent for path in names for parent in path.parents}
    long = any(len(part.encode()) > _LONGEST_NAME for path in names for part in path.parts)
    if len(set(names)) < len(names) or whole & folders or long or any(one.flag_bits & 1 for one in files):
        raise zipfile.BadZipFile  # the same file twice, a file that is also a folder, or one that is encrypted


def may_ask(folder: Path) -> bool:
    """Whether the member's key exists, and the server has never let its node in."""
    site = member_site(folder)
    client = read_record(site)["client"]
    let_in = site.registry().get(client, {}).get("node_id") is not None or processes.connected(site, client)
    return site.key(client).exists() and not let_in


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
    """Run the node; False if the server rejects it. `data` and `address` are remembered."""
    site = member_site(folder)
    told, client = read_record(site), read_record(site)["client"]
    if told["left"]:
        raise ValueError(f"{told['name']} has left the federation; it needs a new invitation to rejoin.")
    if hashlib.sha256((site.folder / _APP).read_bytes()).hexdigest() != told["app"]:
        raise ValueError(f"{site.folder / _APP} is not the app that was agreed on; accept the invitation again.")
    if data is not None and not data.is_dir():
        raise ValueError(f"--data: {data} is not a folder; pass the folder with the member's table.")
    if address is not None and not is_address(address):
        raise ValueError(f"--address must be HOST:PORT, where HOST is a name or an IPv4 address; got {address!r}.")
    changed = {"data": str(data.absolute())} if data is not None else {}
    if address is not None and address != site.address:
        changed["address"] = address
    settings = _settings(folder, site, told | changed)
    if changed:
        processes.stop(site)
        if "address" in changed:
            site.connect(int(changed["address"].rpartition(":")[2]), changed["address"])
        write_whole(site.folder / _RECORD, json.dumps(told | changed, indent=1).encode(), private=True)
    let_in = processes.start_node(site, client, settings, _START)
    if let_in:
        _remember_node(site, client)
    return let_in


def _settings(folder: Path, site: Site, told: dict[str, Any]) -> dict[str, Any]:
    """The node's settings. This runs the app for the first time; the member has had the chance to review it."""
    made = load_federation(folder / "app.py")
    data = told["data"]
    if isinstance(made.source, TableSource):
        if data is None:
            raise ValueError("--data: the app reads a table of this member; pass its folder.")
        if not Path(data).is_dir():
            raise ValueError(f"--data: {data} is not a folder; pass the folder with the member's table.")
    if data is not None and any(character in data for character in "\"'\\\n"):
        raise ValueError(f"--data: the path must not contain quotes or backslashes; got {data}.")
    return {
        "worker": [sys.executable, "-m", "performative.live.worker"],
        "warm": ["performative", "performative.live.flower"],
        "forks": True,
        "deadline": float(made.timeout) + _GRACE,
        "data": data,
        "pinned": str(site.folder / _APP),
        "largest": largest_message(made),
    }


def _remember_node(site: Site, client: int) -> None:
    """Save the node id assigned by the server: a killed node can then be deregistered before it returns."""
    text = site.log(f"client-{client}").read_bytes()
    number = text[text.rfind(LET_IN) + len(LET_IN) :].split(maxsplit=1)[0]
    registry = site.registry()
    registry[client]["node_id"] = int(number.decode().split("\x1b")[0])
    site.write_registry(registry)


def leave(folder: Path, out: Path) -> str:
    """Stop the node permanently; writes the request for its removal from the server's list to `out`.

    After an interruption it may be repeated: the key goes last.
    """
    site = member_site(folder)
    told = read_record(site)
    name, key = told["name"], site.key(told["client"])
    if not key.exists():
        if told["left"]:
            raise ValueError(f"{name} has already left.")
        raise ValueError(
            f"the key of {name} is missing, so no request can be signed with it; stop the node with `federation down`, "
            f"and ask the server's owner to run `federation expel {name}`."
        )
    read = write_request(folder, LEAVE, out)
    processes.stop(site)
    write_whole(site.folder / _RECORD, json.dumps(told | {"left": True}, indent=1).encode(), private=True)
    key.unlink()  # nobody can act as this member anymore
    return read


def member_status(folder: Path) -> dict[str, Any]:
    """What is running here, and the server's last response."""
    site = member_site(folder)
    told, here = read_record(site), processes.running(site)
    client = told["client"]
    refused = site.folder / REFUSED
    if told["left"]:
        state = "left"
    elif f"client-{client}" in here:
        state = "up, accepted by the server" if processes.connected(site, client) else "up, trying to reach the server"
    else:
        state = "rejected by the server: not approved, or expelled" if refused.exists() else "down"
    return {
        "member": told["name"],
        "client": client,
        "state": state,
        "address": site.address,
        "app": told["app"],
        "processes": here,
        "authority_until": authority_until(site),
        "certificates": certificate_warnings(site),
    }


def member_lines(found: dict[str, Any]) -> list[str]:
    """The status as lines of text."""
    until = found["authority_until"] or "unknown"
    return [
        f"{found['member']}, client {found['client']}: {found['state']}",
        f"server at {found['address']}; app {found['app'][:12]}; authority until {until}",
        *found["certificates"],
    ]

"""A server's certificates: renewed, issued again, and logged before they take effect."""

import json
from pathlib import Path
from typing import Any

from performative._base.files import write_whole
from performative.live.archives import finish_archive
from performative.live.journal import Journal, read_journal
from performative.live.loopback import processes
from performative.live.loopback.certificates import (
    SERVER,
    STAGED,
    decide,
    ends_soon,
    finish_issue,
    is_signed_by_authority,
    stage_authority,
    stage_server,
    staged,
    valid_until,
)
from performative.live.loopback.commands import FederationError
from performative.live.loopback.site import Site, read_json
from performative.live.membership.validity import is_expired
from performative.live.server_store import is_held

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


def journal_of(app: Path) -> Journal:
    """The server's signed log."""
    folder = Site.inside(app).folder / "server"
    finish_archive(folder)
    return Journal(folder)


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
        begun = staged_facts(site, new_authority) | {"restart": restart}
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
        log_certificate(journal_of(app), begun)
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
    log_certificate(journal_of(app), staged_facts(site, False))
    processes.stop(site)
    decide(site.certificates)
    return why


def end_rotation(app: Path) -> None:
    """Record that nothing of a rotation is left to do."""
    (Site.inside(app).folder / _ROTATION).unlink(missing_ok=True)


def _begun(site: Site) -> dict[str, Any]:
    """The rotation that has begun, {} if none has."""
    return read_json(site.folder / _ROTATION, "delete it, then run `federation rotate`")


def staged_facts(site: Site, new_authority: bool) -> dict[str, Any]:
    """The server certificate that waits for a decision, for the log."""
    until = valid_until(site.certificates / STAGED / SERVER)
    return {"certificate": staged(site.certificates), "until": until.isoformat(), "new_authority": new_authority}


def log_certificate(journal: Journal, told: dict[str, Any]) -> None:
    """Log a server certificate before it is put in place, once."""
    facts = {name: told[name] for name in ("until", "new_authority", "certificate")}
    if not any((line["what"], line["facts"]) == ("certificate", facts) for line in read_journal(journal.folder)):
        journal.write("certificate", **facts)

"""The certificates of a server's or a member's host: which is lost or has expired, and the remedy for each."""

import datetime
import ssl
from pathlib import Path
from typing import NamedTuple

from performative._base.checkup import Check
from performative.live.loopback.certificates import (
    AUTHORITY,
    AUTHORITY_KEY,
    SERVER,
    ends_soon,
    is_signed_by_authority,
    valid_until,
)
from performative.live.loopback.site import Site

_NAME = "certificates"
_NEW_AUTHORITY = "`federation rotate --new-authority`, then `federation invite NAME` for each member"
# OpenSSL's codes of a failed verification.
_NOT_YET, _EXPIRED, _OTHER_NAME = 9, 10, (62, 63, 64)


class _State(NamedTuple):
    """What a certificate is like: `lost` if it is missing or damaged, `late` if it has expired or soon will."""

    text: str
    lost: bool = False
    late: bool = False


def examine_certificates(site: Site) -> list[Check]:
    """Check the certificates that this host has: a member has that of the authority only."""
    authority = _state(site.authority, "the authority's certificate (ca.pem)")
    if site.joined:
        return [Check(_NAME, authority.text, _remedy_of_member(authority))]
    server = _state(site.certificates / SERVER, "the server's certificate (server.pem)")
    if site.address is None:
        remedy = "`federation up` creates new ones"
        return [Check(_NAME, one.text, remedy if one.lost or one.late else "") for one in (server, authority)]
    if not server.lost and not authority.lost and not is_signed_by_authority(site.certificates):
        text = "the server's certificate (server.pem) does not match its key (server.key), or is of another authority"
        server = _State(text, lost=True)
    found = [Check(_NAME, server.text, _remedy_of_server(site, server, authority))]
    found.append(Check(_NAME, authority.text, _remedy_of_authority(authority)))
    if not (site.certificates / AUTHORITY_KEY).exists():
        found.append(Check(_NAME, "the authority's key (ca.key) is kept elsewhere; the next `rotate` needs it"))
    return found


def certificate_warnings(site: Site) -> list[str]:
    """What is wrong with the certificates, or soon will be, as lines of text."""
    return [f"{check.found}: {check.remedy}" for check in examine_certificates(site) if check.wrong]


def authority_until(site: Site) -> str | None:
    """The day on which the authority expires; None if its certificate is lost."""
    try:
        return valid_until(site.authority).date().isoformat()
    except (FileNotFoundError, ValueError):
        return None


def is_expired(path: Path) -> bool:
    """Whether a certificate has expired."""
    return valid_until(path) < datetime.datetime.now(datetime.UTC)


def _state(path: Path, name: str) -> _State:
    if not path.exists():
        return _State(f"{name} is missing", lost=True)
    try:
        until = valid_until(path)
    except ValueError:
        return _State(f"{name} is damaged", lost=True)
    return _State(f"{name} {'expired' if is_expired(path) else 'expires'} on {until.date()}", late=ends_soon(path))


def _remedy_of_member(authority: _State) -> str:
    if authority.lost:
        return "ask the server's owner for a new file (`federation invite NAME`), and accept it: `federation join FILE`"
    return (
        f"the server's owner runs {_NEW_AUTHORITY}; accept that file: `federation join FILE`" if authority.late else ""
    )


def _remedy_of_authority(authority: _State) -> str:
    if authority.lost:
        return (
            f"restore it from a backup, or from a member's .federation/certificates/{AUTHORITY}; do not create a new "
            "authority unless it is lost everywhere, since members trust no other"
        )
    return _NEW_AUTHORITY if authority.late else ""


def _remedy_of_server(site: Site, server: _State, authority: _State) -> str:
    if not (server.lost or server.late):
        return ""
    if authority.lost:
        return "first restore the authority's certificate, then `federation up`"
    if authority.late:
        return _NEW_AUTHORITY
    if not (site.certificates / AUTHORITY_KEY).exists():
        return "`federation rotate --authority-key FILE`; members need not act"
    return f"`federation {'up' if server.lost else 'rotate'}` issues a new one; members need not act"


def examine_presented(site: Site, where: str, error: ssl.SSLCertVerificationError) -> Check:
    """Why the certificate that the server presents is not accepted here."""
    authority = _state(site.authority, "the authority's certificate (ca.pem)")
    if authority.lost or (error.verify_code == _EXPIRED and is_expired(site.authority)):
        remedy = _remedy_of_member(authority) if site.joined else _remedy_of_authority(authority)
        return Check("server", f"{where} cannot be verified: {authority.text}", remedy)
    if error.verify_code == _EXPIRED:
        remedy = "ask its owner to run `federation rotate`; this host need not act" if site.joined else (
            "`federation rotate`; members need not act")  # fmt: skip
        return Check("server", f"the certificate of the server at {where} has expired", remedy)
    if error.verify_code == _NOT_YET:
        return Check("server", f"the certificate of the server at {where} is not valid yet", "synchronize the clocks")
    if not site.joined:
        remedy = "`federation down`, then `federation up`"
        return Check("server", f"the server at {where} runs with another certificate: {error.verify_message}", remedy)
    if error.verify_code in _OTHER_NAME:
        remedy = f"ask its owner for the right address (`federation join --address`), or to run `up --address {where}`"
        return Check("server", f"the certificate of the server at {where} is for another address", remedy)
    remedy = "if its owner has created a new authority, ask for a new file (`federation invite`); else do not join"
    return Check("server", f"{where} presents a certificate of another authority: {error.verify_message}", remedy)

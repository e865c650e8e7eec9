"""Client identities: each client's identity key stays in its folder, next to everyone's public keys.

The roster must not come from the server: whoever writes it could impersonate all other clients. `provision` writes it
if one owner has all folders (a rehearsal, a federation on one machine); otherwise each owner collects the others'
`identity.pub` and writes roster.json, {"0": "<hex>", "1": "<hex>", ...}.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from performative._base.files import write_whole
from performative.live.secure import keys
from performative.live.telling import RequestRefused

_KEY, _PUBLIC, _ROSTER = "identity.key", "identity.pub", "roster.json"


def identity_of(folder: Path) -> bytes:
    """A client's Ed25519 key, created if there is none."""
    path = folder / _KEY
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, keys.new_signing_key(), private=True)
    private = path.read_bytes()
    if len(private) != keys.KEY:
        raise ValueError(f"{path} must contain {keys.KEY} bytes; it contains {len(private)}.")
    public = keys.signing_public(private).hex()
    if not (folder / _PUBLIC).exists() or (folder / _PUBLIC).read_text().strip() != public:
        write_whole(folder / _PUBLIC, f"{public}\n".encode())
    return private


def provision(folders: Mapping[int, Path]) -> None:
    """Give every client an identity and the roster of all; existing ones are kept."""
    known = {str(client): keys.signing_public(identity_of(folder)).hex() for client, folder in sorted(folders.items())}
    content = json.dumps(known, indent=1).encode()
    for folder in folders.values():
        if not (folder / _ROSTER).exists() or (folder / _ROSTER).read_bytes() != content:
            write_whole(folder / _ROSTER, content, private=True)


def read_roster(folder: Path) -> dict[int, bytes]:
    """Public keys by client, as recorded by this client's owner."""
    path = folder / _ROSTER
    if not path.exists():
        raise RequestRefused(
            f"this client has no {_ROSTER} with the other clients' public keys, so it could not distinguish them from "
            "the server; `performative federation up` writes it on one machine."
        )
    try:
        known = {int(client): bytes.fromhex(public) for client, public in json.loads(path.read_text()).items()}
    except (ValueError, TypeError, AttributeError):
        raise RequestRefused(f"this client's {_ROSTER} cannot be read.") from None
    owners: dict[bytes, int] = {}
    for client, public in known.items():
        if len(public) != keys.KEY:
            raise RequestRefused(
                f"this client's {_ROSTER}: the key of client {client} must have {2 * keys.KEY} hex digits; ask its "
                "owner for identity.pub."
            )
        if public in owners:
            raise RequestRefused(
                f"this client's {_ROSTER} gives clients {owners[public]} and {client} the same key, so one of them "
                "could count twice; ask their owners for identity.pub."
            )
        owners[public] = client
    return known

"""Who is who: each client's identity key stays in its folder, and everybody's public keys lie beside it.

The roster must not come from the server: whoever writes it could stand in for all other clients. `provision` writes it
where one owner holds all folders (a rehearsal, a federation on one machine); elsewhere each owner collects the others'
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
    """A client's Ed25519 key, made where there is none."""
    path = folder / _KEY
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, keys.new_signing_key(), private=True)
    private = path.read_bytes()
    if len(private) != keys.KEY:
        raise ValueError(f"{path} must hold the {keys.KEY} bytes that were written there; it holds {len(private)}.")
    public = keys.signing_public(private).hex()
    if not (folder / _PUBLIC).exists() or (folder / _PUBLIC).read_text().strip() != public:
        write_whole(folder / _PUBLIC, f"{public}\n".encode())
    return private


def provision(folders: Mapping[int, Path]) -> None:
    """Give every client an identity, and the roster of all; those that are there stay."""
    known = {str(client): keys.signing_public(identity_of(folder)).hex() for client, folder in sorted(folders.items())}
    content = json.dumps(known, indent=1).encode()
    for folder in folders.values():
        if not (folder / _ROSTER).exists() or (folder / _ROSTER).read_bytes() != content:
            write_whole(folder / _ROSTER, content)


def read_roster(folder: Path) -> dict[int, bytes]:
    """Public keys by client, as this client's owner wrote them down."""
    path = folder / _ROSTER
    if not path.exists():
        raise RequestRefused(
            f"this client has no {_ROSTER} with the other clients' public keys, so it could not tell them from the "
            "server; `performative federation up` writes it on one machine."
        )
    try:
        return {int(client): bytes.fromhex(public) for client, public in json.loads(path.read_text()).items()}
    except (ValueError, TypeError, AttributeError):
        raise RequestRefused(f"this client's {_ROSTER} cannot be read.") from None

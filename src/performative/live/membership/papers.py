"""The files that people carry between a server and its members: an invitation one way, a request the other.

    invitation: what a member needs to find and recognise the server, and the app that it will run; signed by the server
                (Ed25519, the key of its log). The first holds a token that is good for one request
    request:    the member's public key and the hash of the app that it agreed to; signed with that very key (ECDSA,
                P-384), which proves that the member has its other half, and bound to the invitation by an HMAC whose
                key is the token. It holds no secret

Whoever reads an invitation on its way could ask in the member's place: both sides read the fingerprint of the member's
key to each other before it is approved.
"""

import base64
import dataclasses
import hashlib
import hmac
import json
import re
from pathlib import Path
from typing import Any

from performative._base.files import write_whole
from performative.live.secure import keys

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
INVITATION, JOIN, LEAVE = "invitation", "join", "leave"
_LONGEST = 32 << 20
_KINDS = dict.fromkeys(("federation", "address", "authority", "name", "token"), "str") | {
    **dict.fromkeys(("client", "clients"), "int"),
    **dict.fromkeys(("made", "expires"), "float"),
    "app": "bytes",
    "versions": "dict",
}


@dataclasses.dataclass(frozen=True)
class Invitation:
    """What the server's owner sends to a member.

    Attributes:
        federation: the server's public key, in hex
        authority: the certificate authority, PEM
        client, clients: the member's number, and how many there are
        token: hex; "" in an invitation that only brings a registered member up to date
        made, expires: seconds since 1970
        app: the app's bundle, as Flower carries it
        versions: of Flower and of this library on the server
    """

    federation: str
    address: str
    authority: str
    name: str
    client: int
    clients: int
    token: str
    made: float
    expires: float
    app: bytes
    versions: dict[str, str]

    @property
    def app_hash(self) -> str:
        return hashlib.sha256(self.app).hexdigest()

    def facts(self) -> dict[str, Any]:
        """All of it as JSON can hold it."""
        return dataclasses.asdict(self) | {"kind": INVITATION, "app": base64.b64encode(self.app).decode()}


def text_of(facts: dict[str, Any]) -> bytes:
    """One way to write facts, so that what is signed is what stands there."""
    return json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def write_paper(path: Path, facts: dict[str, Any]) -> None:
    """For its owner's eyes only, until the owner sends it."""
    write_whole(path, json.dumps(facts, indent=1, sort_keys=True).encode() + b"\n", private=True)


def read_paper(path: Path, *kinds: str) -> dict[str, Any]:
    """The facts in a file of one of these kinds."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}.")
    if path.stat().st_size > _LONGEST:
        raise ValueError(f"{path} is no {' or '.join(kinds)} of a federation: it is too long.")
    try:
        facts: dict[str, Any] = json.loads(path.read_bytes())
        kind = facts["kind"]
    except (ValueError, TypeError, KeyError, AttributeError):
        kind = None
    if kind not in kinds:
        raise ValueError(f"{path} is no {' or '.join(kinds)} of a federation.")
    return facts


def read_invitation(path: Path) -> Invitation:
    """An invitation that is signed with the key that it names."""
    facts = read_paper(path, INVITATION)
    try:
        signature = bytes.fromhex(facts.pop("signature"))
        signed = keys.is_signed(bytes.fromhex(facts["federation"]), signature, text_of(facts))
        facts.pop("kind")
        made = Invitation(**facts | {"app": base64.b64decode(facts["app"], validate=True)})
        kinds = {one.name: type(getattr(made, one.name)).__name__ for one in dataclasses.fields(made)}
        whole = kinds == _KINDS
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ValueError(f"{path} is not an invitation as this library writes it; ask for a new one.") from None
    if not signed or not whole or not NAME.fullmatch(made.name):
        raise ValueError(f"{path} was changed after it was signed; ask for a new one.")
    return made


def make_request(kind: str, key_file: Path, about: dict[str, Any], token: str) -> dict[str, Any]:
    """A request, signed with the key in a file; `token` "" where there is none to prove."""
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key: Any = serialization.load_ssh_private_key(key_file.read_bytes(), None)
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    facts = about | {"kind": kind, "public_key": public.decode()}
    facts["proof"] = proof_of(token, facts) if token else ""
    return facts | {"signature": key.sign(text_of(facts), ec.ECDSA(hashes.SHA384())).hex()}


def proof_of(token: str, facts: dict[str, Any]) -> str:
    """HMAC of all facts but the proof itself, with the invitation's token as its key."""
    told = {name: value for name, value in facts.items() if name not in ("proof", "signature")}
    return hmac.new(bytes.fromhex(token), text_of(told), "sha256").hexdigest()


def read_request(path: Path) -> dict[str, Any]:
    """A request that is signed with the key that it asks for."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    facts = read_paper(path, JOIN, LEAVE)
    try:
        signature = bytes.fromhex(facts.pop("signature"))
        public: Any = serialization.load_pem_public_key(facts["public_key"].encode())
        if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(facts["name"], str):
            raise ValueError
        public.verify(signature, text_of(facts), ec.ECDSA(hashes.SHA384()))
    except (ValueError, TypeError, KeyError, AttributeError, InvalidSignature):
        raise ValueError(
            f"{path} is not signed with the key that it names: it was changed, or the sender does not have that key. "
            "Ask the member to run `federation join` again and to send the new file."
        ) from None
    return facts


def fingerprint(public_key: str) -> str:
    """What people read to each other: 128 bits of the sha256 of a public key (PEM)."""
    from cryptography.hazmat.primitives import serialization

    der = serialization.load_pem_public_key(public_key.encode()).public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    digits = hashlib.sha256(der).hexdigest()[:32]
    return " ".join(digits[at : at + 4] for at in range(0, 32, 4))

"""The files exchanged between a server and its members: an invitation one way, a request the other.

    invitation: what a member needs to reach and authenticate the server, and the app that it will run; signed by the
                server (Ed25519, the key of its log). The first one contains a token valid for one request
    request:    the member's public key and the hash of the app that it agreed to; signed with that key (ECDSA, P-384),
                which proves that the member has the private key, and bound to the invitation by an HMAC keyed with the
                token. It contains no secret

Whoever intercepts an invitation could send a request in the member's place: both sides compare the fingerprint of the
member's key before it is approved. Whoever replaces it could lead the member to another server: the member compares the
fingerprint of the federation's key.
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
_HOST = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*")
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
        client, clients: the member's number, and the number of members
        token: hex; "" in an invitation that only updates a registered member
        made, expires: seconds since 1970
        app: the app's bundle, as Flower transports it
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
        """All fields as JSON values."""
        return dataclasses.asdict(self) | {"kind": INVITATION, "app": base64.b64encode(self.app).decode()}


def is_address(address: str) -> bool:
    """Whether this is host:port, where host is a name or an IPv4 address."""
    host, _, port = address.rpartition(":")
    return bool(_HOST.fullmatch(host) and re.fullmatch("[0-9]{1,5}", port)) and 1 <= int(port) <= 65535


def text_of(facts: dict[str, Any]) -> bytes:
    """A canonical encoding of facts, so what is signed is what is written."""
    return json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def write_paper(path: Path, facts: dict[str, Any]) -> None:
    """Write a file readable only by its owner, until the owner sends it."""
    write_whole(path, json.dumps(facts, indent=1, sort_keys=True).encode() + b"\n", private=True)


def read_paper(path: Path, *kinds: str) -> dict[str, Any]:
    """The facts in a file of one of these kinds."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}.")
    if path.stat().st_size > _LONGEST:
        raise ValueError(f"{path} is not a federation's {' or '.join(kinds)} file: it is too large.")
    try:
        facts: dict[str, Any] = json.loads(path.read_bytes())
        kind = facts["kind"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        kind = None
    if kind not in kinds:
        raise ValueError(f"{path} is not a federation's {' or '.join(kinds)} file.")
    return facts


def read_invitation(path: Path) -> Invitation:
    """Read an invitation and check that it is signed with the key that it names."""
    facts = read_paper(path, INVITATION)
    try:
        signature = bytes.fromhex(facts.pop("signature"))
        signed = keys.is_signed(bytes.fromhex(facts["federation"]), signature, text_of(facts))
        facts.pop("kind")
        made = Invitation(**facts | {"app": base64.b64decode(facts["app"], validate=True)})
        kinds = {one.name: type(getattr(made, one.name)).__name__ for one in dataclasses.fields(made)}
        whole = kinds == _KINDS and 0 <= made.client < made.clients and is_address(made.address)
        bytes.fromhex(made.token)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ValueError(f"{path} is not a valid invitation; ask for a new one.") from None
    if not signed or not whole or not NAME.fullmatch(made.name):
        raise ValueError(f"{path} was changed after it was signed; ask for a new one.")
    return made


def make_request(kind: str, key_file: Path, about: dict[str, Any], token: str) -> dict[str, Any]:
    """A request, signed with the key in a file; `token` is "" if there is none to prove."""
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key: Any = serialization.load_ssh_private_key(key_file.read_bytes(), None)
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    facts = about | {"kind": kind, "public_key": public.decode()}
    facts["proof"] = proof_of(token, facts) if token else ""
    return facts | {"signature": key.sign(text_of(facts), ec.ECDSA(hashes.SHA384())).hex()}


def proof_of(token: str, facts: dict[str, Any]) -> str:
    """HMAC of all facts except the proof itself, keyed with the invitation's token."""
    told = {name: value for name, value in facts.items() if name not in ("proof", "signature")}
    return hmac.new(bytes.fromhex(token), text_of(told), "sha256").hexdigest()


def read_request(path: Path) -> dict[str, Any]:
    """Read a request and check that it is signed with the key that it asks to register."""
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    facts = read_paper(path, JOIN, LEAVE)
    try:
        signature = bytes.fromhex(facts.pop("signature"))
        public: Any = serialization.load_pem_public_key(facts["public_key"].encode())
        if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(facts["name"], str):
            raise ValueError
        public.verify(signature, text_of(facts), ec.ECDSA(hashes.SHA384()))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, InvalidSignature, UnsupportedAlgorithm):
        raise ValueError(
            f"{path} is not signed with the key that it names: it was changed, or the sender does not have that key. "
            "Ask the member to resend the file that `federation join` wrote, or invite the member again."
        ) from None
    return facts


def fingerprint(public_key: str) -> str:
    """The fingerprint of a public key (PEM), to be read aloud and compared: 128 bits of its sha256."""
    from cryptography.hazmat.primitives import serialization

    return _digits_of(serialization.load_pem_public_key(public_key.encode()))


def federation_fingerprint(federation: str, told: str | None = None) -> str:
    """The same of a federation's key (hex). `told`: what the server's owner read out; any other is refused."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    read = _digits_of(Ed25519PublicKey.from_public_bytes(bytes.fromhex(federation)))
    if told is not None and "".join(told.split()).lower() != read.replace(" ", ""):
        raise ValueError(
            f"--fingerprint: the federation's key has the fingerprint {read}, not this one. Nothing was accepted; ask "
            "the server's owner to read it out again, and if it differs, for a new invitation."
        )
    return read


def _digits_of(public_key: Any) -> str:
    from cryptography.hazmat.primitives import serialization

    der = public_key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    digits = hashlib.sha256(der).hexdigest()[:32]
    return " ".join(digits[at : at + 4] for at in range(0, 32, 4))

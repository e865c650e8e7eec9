"""Certificates and keys of a federation, generated on demand.

The federation's own certificate authority signs one server certificate, for 127.0.0.1, localhost and the names at which
members reach the server. On one machine the authority's key is used once and never written: everyone who trusts it is
local, and a new authority costs nothing. If members have their own hosts (`keep=True`), it is kept with the
certificates, for the next server certificate: `performative federation rotate`. It may be moved to a safer place.

Each client has an elliptic-curve key (P-384) in the OpenSSH format that `flower-supernode --auth-supernode-private-key`
and `flwr supernode register` read. Private keys are readable only by their owner.
"""

import contextlib
import datetime
import ipaddress
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from performative._base.files import write_whole

AUTHORITY = "ca.pem"
AUTHORITY_KEY = "ca.key"
SERVER = "server.pem"
SERVER_KEY = "server.key"

LIFETIME = datetime.timedelta(days=825)  # the longest that common TLS clients accept for a server certificate
AUTHORITY_LIFETIME = datetime.timedelta(days=3650)
RENEW_BEFORE = datetime.timedelta(days=30)

# New certificates are complete in the first folder before they are decided on, which renames it to the second. Its
# files then take their places, whatever interrupts that: see `finish_issue`.
STAGED, _DECIDED = "staged", "decided"


def private_folder(folder: Path) -> Path:
    """Create a folder that only its owner may enter."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder


def write_private(path: Path, content: bytes) -> None:
    """Write a file that is never readable by others, not even while it is being written."""
    write_whole(path, content, private=True)


def certificates_good(folder: Path) -> bool:
    """Whether the folder has a server certificate signed by its own authority that does not expire soon."""
    return is_signed_by_authority(folder) and not ends_soon(folder / SERVER)


def is_signed_by_authority(folder: Path) -> bool:
    """Whether authority, server certificate and its key exist and belong together."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import serialization

    if not all((folder / name).is_file() for name in (AUTHORITY, SERVER, SERVER_KEY)):
        return False
    try:
        authority = x509.load_pem_x509_certificate((folder / AUTHORITY).read_bytes())
        server = x509.load_pem_x509_certificate((folder / SERVER).read_bytes())
        server.verify_directly_issued_by(authority)
        key = serialization.load_pem_private_key((folder / SERVER_KEY).read_bytes(), None)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return bool(key.public_key() == server.public_key())


def valid_until(path: Path) -> datetime.datetime:
    """When a certificate expires."""
    from cryptography import x509

    return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc


def ends_soon(path: Path) -> bool:
    """Whether a certificate has expired, or will within 30 days."""
    return valid_until(path) < datetime.datetime.now(datetime.UTC) + RENEW_BEFORE


def names_in(path: Path) -> set[str]:
    """The names and addresses that a server certificate is for."""
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(one.value) for one in names}


def make_certificates(folder: Path, names: Iterable[str] = (), keep: bool = False) -> bool:
    """Create authority and server certificate unless valid ones exist; True if new ones were created."""
    if certificates_good(folder):
        return False
    make_authority(folder, names, keep)
    return True


def make_authority(folder: Path, names: Iterable[str] = (), keep: bool = False) -> None:
    """Create a new authority and a server certificate signed by it; `keep`: save its key."""
    stage_authority(folder, names, keep)
    decide(folder)


def renew_server(folder: Path, names: Iterable[str], key_file: Path | None = None) -> None:
    """Issue a new server certificate from the existing authority. `key_file`: its key, if kept elsewhere."""
    stage_server(folder, names, key_file)
    decide(folder)


def staged(folder: Path) -> str:
    """The digest of the server certificate that waits for a decision, "" if there is none."""
    place = folder / STAGED
    return digest_of(place / SERVER) if (place / AUTHORITY).exists() else ""  # the authority is written last


def digest_of(path: Path) -> str:
    """The sha256 of a certificate, in hex."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    return x509.load_pem_x509_certificate(path.read_bytes()).fingerprint(hashes.SHA256()).hex()


def decide(folder: Path) -> None:
    """Put the new certificates in place."""
    finish_issue(folder)
    os.rename(folder / STAGED, folder / _DECIDED)
    finish_issue(folder)


def finish_issue(folder: Path) -> None:
    """Put certificates in place that were decided on, if that was interrupted."""
    place = folder / _DECIDED
    if place.exists():
        for path in sorted(place.iterdir()):
            os.replace(path, folder / path.name)
        place.rmdir()


def _stage(folder: Path) -> Path:
    """An empty folder for new certificates."""
    private_folder(folder)
    shutil.rmtree(folder / STAGED, ignore_errors=True)
    return private_folder(folder / STAGED)


def stage_authority(folder: Path, names: Iterable[str] = (), keep: bool = False) -> None:
    """Create a new authority and a server certificate, which do not count yet."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    place = _stage(folder)
    key = ec.generate_private_key(ec.SECP384R1())
    name = _name("performative federation authority")
    authority = (
        _begin(name, name, key.public_key(), AUTHORITY_LIFETIME if keep else LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(sign_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA384())
    )
    if keep:
        write_private(place / AUTHORITY_KEY, _pem(key))
    _issue(place, key, authority, names)


def stage_server(folder: Path, names: Iterable[str], key_file: Path | None = None) -> None:
    """Issue a server certificate, which does not count yet."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    path = folder / AUTHORITY_KEY if key_file is None else key_file
    if not (folder / AUTHORITY).is_file():
        raise ValueError(
            f"{folder / AUTHORITY}, the authority's certificate, is missing; restore it from a backup, or from a "
            f"member's .federation/certificates/{AUTHORITY}; or create a new authority (rotate --new-authority), which "
            "every member must then accept."
        )
    if not path.is_file():
        raise ValueError(
            f"{path}, the authority's key, is missing; provide it (rotate --authority-key FILE), or create a new "
            "authority (rotate --new-authority), which every member must then accept."
        )
    try:
        key: Any = serialization.load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError) as unreadable:  # TypeError: it has a passphrase
        raise ValueError(
            f"{path} must contain the authority's private key as unencrypted PEM; for a key with a passphrase: "
            f"openssl ec -in {path} -out FILE, then pass FILE."
        ) from unreadable
    authority = x509.load_pem_x509_certificate((folder / AUTHORITY).read_bytes())
    if authority.public_key() != key.public_key():
        raise ValueError(f"{path} is not the key of the authority in {folder / AUTHORITY}; pass the matching key.")
    _issue(_stage(folder), key, authority, names)


def _issue(folder: Path, authority_key: Any, authority: Any, names: Iterable[str]) -> None:
    """Write a server certificate and its key, then the authority's."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key = ec.generate_private_key(ec.SECP384R1())
    issuer_id = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    vouched = [_general_name(name) for name in dict.fromkeys(("localhost", "127.0.0.1", *names))]
    server = (
        _begin(_name("localhost"), authority.subject, key.public_key(), LIFETIME)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(vouched), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_id), critical=False)
        .sign(authority_key, hashes.SHA384())
    )
    pem = serialization.Encoding.PEM
    write_private(folder / SERVER_KEY, _pem(key))
    write_private(folder / SERVER, server.public_bytes(pem))
    write_private(folder / AUTHORITY, authority.public_bytes(pem))


def _name(common: str) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _general_name(name: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _begin(subject: Any, issuer: Any, public: Any, lifetime: datetime.timedelta) -> Any:
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))  # clocks differ slightly
        .not_valid_after(now + lifetime)
    )


def _usage(sign_certificates: bool) -> Any:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    made: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made


@contextlib.contextmanager
def openssh_file(path: Path, public_key: str) -> Iterator[Path]:
    """A public key (PEM) as a temporary file in the format that `flwr supernode register` reads."""
    from cryptography.hazmat.primitives import serialization

    public = serialization.load_pem_public_key(public_key.encode())
    ssh = public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    write_private(path, ssh + b"\n")
    try:
        yield path
    finally:
        path.unlink()


def make_key(path: Path) -> str:
    """Load the client's key pair at `path` (`.key` and `.pub`), or create it.

    Returns the public key as PEM, the format of Flower's `NodeInfo.public_key` on the server. The public file
    (OpenSSH, for `flwr supernode register`) is written from the private one, so the two cannot disagree.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private_folder(path.parent)
    if not path.exists():
        new = ec.generate_private_key(ec.SECP384R1())
        write_private(
            path,
            new.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
            ),
        )
    key = serialization.load_ssh_private_key(path.read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{path} must contain an elliptic-curve private key; delete it to create a new one.")
    public = key.public_key()
    for_register = public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    write_private(path.with_suffix(".pub"), for_register + b"\n")
    return public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()

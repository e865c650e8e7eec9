"""Certificates and keys of a federation on this machine, made on the spot.

A certificate authority signs one server certificate for 127.0.0.1 and localhost; its own key is used once and never
written, so nobody can sign a second server later. Each client has an elliptic-curve key (P-384) in the OpenSSH format
that `flower-supernode --auth-supernode-private-key` and `flwr supernode register` read. Private keys are readable by
their owner alone.
"""

import datetime
import ipaddress
from pathlib import Path

from performative._base.files import write_whole

AUTHORITY = "ca.pem"
SERVER = "server.pem"
SERVER_KEY = "server.key"

LIFETIME = datetime.timedelta(days=825)  # the longest that common TLS clients accept for a server certificate
RENEW_BEFORE = datetime.timedelta(days=30)


def private_folder(folder: Path) -> Path:
    """Make a folder that only its owner may enter."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder


def write_private(path: Path, content: bytes) -> None:
    """Write a file that is never readable by others, not even while it is being written."""
    write_whole(path, content, private=True)


def certificates_good(folder: Path) -> bool:
    """Whether the folder holds a server certificate that its own authority signed and that stays valid for a while."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    if not all((folder / name).is_file() for name in (AUTHORITY, SERVER, SERVER_KEY)):
        return False
    try:
        authority = x509.load_pem_x509_certificate((folder / AUTHORITY).read_bytes())
        server = x509.load_pem_x509_certificate((folder / SERVER).read_bytes())
        server.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return datetime.datetime.now(datetime.UTC) + RENEW_BEFORE < server.not_valid_after_utc


def make_certificates(folder: Path) -> bool:
    """Make authority and server certificate where good ones are not there yet; True when new ones were made."""
    if certificates_good(folder):
        return False
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    def name(common: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])

    def usage(sign_certificates: bool) -> x509.KeyUsage:
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

    private_folder(folder)
    now = datetime.datetime.now(datetime.UTC)
    authority_key, server_key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    authority_name = name("performative federation authority")
    authority_id = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())

    def begin(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(authority_name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))  # clocks differ by a little
            .not_valid_after(now + LIFETIME)
        )

    authority = (
        begin(authority_name, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage(sign_certificates=True), critical=True)
        .add_extension(authority_id, critical=False)
        .sign(authority_key, hashes.SHA384())
    )
    server = (
        begin(name("localhost"), server_key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.DNSName("localhost"), x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))]
            ),
            critical=False,
        )
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority_id), critical=False)
        .sign(authority_key, hashes.SHA384())
    )
    pem = serialization.Encoding.PEM
    key = server_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    write_private(folder / SERVER_KEY, key)
    write_private(folder / SERVER, server.public_bytes(pem))
    write_private(folder / AUTHORITY, authority.public_bytes(pem))
    return True


def make_key(path: Path) -> str:
    """The client's key pair at `path` (`.key` and `.pub`), made where it is not there.

    Returns the public key as PEM, which is how Flower's `NodeInfo.public_key` gives it to the server. The public file
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
        raise ValueError(f"{path} must hold an elliptic-curve private key; delete it to have a new one made.")
    public = key.public_key()
    for_register = public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    write_private(path.with_suffix(".pub"), for_register + b"\n")
    return public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()

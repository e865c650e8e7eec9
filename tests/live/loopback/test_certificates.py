"""Certificates and keys: what they vouch for, who may read them, and that the TLS library accepts them."""

import socket
import ssl
import stat
import threading

import pytest

pytest.importorskip("cryptography")
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from performative.live.loopback import certificates
from performative.live.loopback.certificates import make_certificates, make_key
from performative.live.loopback.site import LONGEST_FOLDER, Site


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def handshake(server_folder, authority, name):
    """The name and the outcome of one TLS handshake in memory of two ends of a socket pair."""
    here, there = socket.socketpair()
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(server_folder / certificates.SERVER, server_folder / certificates.SERVER_KEY)

    def serve():
        try:
            served.wrap_socket(there, server_side=True).close()
        except (ssl.SSLError, OSError):
            there.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        trusted = ssl.create_default_context(cafile=str(authority))
        with trusted.wrap_socket(here, server_hostname=name) as secured:
            return secured.version()
    finally:
        here.close()
        thread.join()


def test_tls_accepts_the_certificate_for_loopback_and_nothing_else(tmp_path):
    make_certificates(tmp_path / "ours")
    make_certificates(tmp_path / "theirs")
    ours = tmp_path / "ours" / certificates.AUTHORITY
    for name in ("127.0.0.1", "localhost"):
        assert handshake(tmp_path / "ours", ours, name) == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        handshake(tmp_path / "ours", ours, "example.org")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tmp_path / "theirs", ours, "localhost")


def test_secrets_are_for_their_owner_and_the_authority_key_is_not_kept(tmp_path):
    folder = tmp_path / "certificates"
    assert make_certificates(folder)
    assert mode(folder) == 0o700
    assert mode(folder / certificates.SERVER_KEY) == 0o600
    # One private key on the disk, and it is the server's: with it nobody can sign another certificate.
    holders = [path.name for path in folder.iterdir() if b"PRIVATE KEY" in path.read_bytes()]
    assert holders == [certificates.SERVER_KEY]
    key = serialization.load_pem_private_key((folder / certificates.SERVER_KEY).read_bytes(), None)
    server = x509.load_pem_x509_certificate((folder / certificates.SERVER).read_bytes())
    assert key.public_key() == server.public_key()
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_good_certificates_stay_and_bad_ones_are_replaced(tmp_path, monkeypatch):
    make_certificates(tmp_path)
    first = (tmp_path / certificates.SERVER).read_bytes()
    assert not make_certificates(tmp_path)
    assert (tmp_path / certificates.SERVER).read_bytes() == first
    (tmp_path / certificates.AUTHORITY).write_bytes(b"torn")
    assert make_certificates(tmp_path)
    assert certificates.certificates_good(tmp_path)
    monkeypatch.setattr(certificates, "RENEW_BEFORE", certificates.LIFETIME)
    assert make_certificates(tmp_path)  # close to its end


def test_a_key_is_made_once_and_its_public_half_follows_it(tmp_path):
    path = tmp_path / "keys" / "client-0.key"
    public = make_key(path)
    assert make_key(path) == public
    assert mode(path) == 0o600 and mode(path.parent) == 0o700
    key = serialization.load_ssh_private_key(path.read_bytes(), None)
    assert isinstance(key.curve, ec.SECP384R1)
    registered = serialization.load_ssh_public_key(path.with_suffix(".pub").read_bytes())
    assert registered == key.public_key() == serialization.load_pem_public_key(public.encode())
    path.unlink()
    assert make_key(path) != public


def test_a_key_of_another_kind_is_refused(tmp_path):
    from cryptography.hazmat.primitives.asymmetric import ed25519

    other = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    (tmp_path / "client-0.key").write_bytes(other)
    with pytest.raises(ValueError, match="elliptic-curve"):
        make_key(tmp_path / "client-0.key")


def test_a_site_keeps_registry_and_keys_of_clients_that_were_there(tmp_path):
    site = Site.inside(tmp_path)
    assert site.prepare(2)
    registry = site.registry()
    registry[1]["node_id"] = 2**64 - 1
    site.write_registry(registry)
    assert not site.prepare(3)
    assert {client: entry["node_id"] for client, entry in site.registry().items()} == {0: None, 1: 2**64 - 1, 2: None}
    assert site.registry()[0] == registry[0]
    site.key(1).unlink()  # a new key is a new node
    site.prepare(3)
    assert site.registry()[1]["node_id"] is None
    assert site.registry()[1]["public_key"] != registry[1]["public_key"]
    assert all(mode(folder) == 0o700 for folder in (site.folder, site.state(0), site.key(0).parent, site.sockets))


def test_a_site_hides_itself_from_bundle_and_git_and_adds_one_line(tmp_path):
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / ".gitignore").write_text("*.pyc")
    site = Site.inside(tmp_path)
    site.prepare()
    site.prepare()
    assert (tmp_path / ".gitignore").read_text() == "*.pyc\n/.federation/\n"
    assert (site.folder / ".gitignore").read_text() == "*\n"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    site.hide(elsewhere)  # the site does not lie in it
    assert not (elsewhere / ".gitignore").exists()


def test_sockets_have_short_paths_wherever_the_site_lies(tmp_path):
    near = Site("/tmp/a/.federation")
    assert near.sockets == near.folder / "sockets"
    far = Site(tmp_path / ("long" * 30))
    assert len(str(far.folder)) > LONGEST_FOLDER
    far.prepare()
    try:
        assert len(str(far.sockets / "client-1000000.forks")) < 100
        assert mode(far.sockets) == 0o700
        assert far.sockets != Site(tmp_path / ("long" * 31)).sockets
    finally:
        far.sockets.rmdir()


def test_a_folder_for_sockets_that_is_a_link_is_refused(tmp_path, monkeypatch):
    site = Site(tmp_path / ("long" * 30))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    site.sockets.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match="another user"):
        site.prepare()


def test_a_path_that_a_command_line_would_break_is_refused(tmp_path):
    with pytest.raises(ValueError, match="quotes"):
        Site(tmp_path / 'a"b').prepare()

"""Which certificate is lost or has expired is told apart, and an authority is never replaced silently."""

import contextlib
import datetime
import socket
import ssl
import threading

import pytest

pytest.importorskip("flwr", reason="the extra performative[flower] is not installed")

from performative.live import read_journal
from performative.live.app import load_app, up, write_app
from performative.live.loopback import certificates, processes
from performative.live.loopback.site import Site
from performative.live.membership import doctor, host, papers, rotation, server, validity

ADDRESS = "127.0.0.1:9443"
PAST = datetime.timedelta(minutes=-1)


@pytest.fixture
def app(tmp_path, monkeypatch):
    """A server's folder with an address; nothing is started."""
    monkeypatch.setattr(processes, "start_server", lambda *told: None)
    monkeypatch.setattr(processes, "check_listen", lambda *told: None)
    write_app(tmp_path / "banks", 2)
    server.set_address(tmp_path / "banks", ADDRESS, None)
    return tmp_path / "banks"


@pytest.fixture
def member(app):
    """A member's folder."""
    paper = app.parent / "north.invitation"
    server.invite(app, "north", 2, client=None, days=1.0, out=paper)
    host.take(papers.read_invitation(paper), app.parent / "north", None)
    return app.parent / "north"


def what(app):
    return [line["what"] for line in read_journal(app / ".federation" / "server")]


def files(app):
    folder = Site.inside(app).certificates
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def expire(app, monkeypatch, authority=False, server=False):
    """Certificates that have expired, of the same kind; the authority's keeps its key only in name."""
    with monkeypatch.context() as patched:
        if authority:
            patched.setattr(certificates, "AUTHORITY_LIFETIME", PAST)
        if server:
            patched.setattr(certificates, "LIFETIME", PAST)
        if authority:
            certificates.make_authority(Site.inside(app).certificates, [], keep=True)
        else:
            certificates.renew_server(Site.inside(app).certificates, [])


def certificate_checks(folder):
    return [check for check in validity.examine_certificates(Site.inside(folder)) if check.wrong]


@contextlib.contextmanager
def presented(folder, monkeypatch, *sites):
    """A server that presents the certificate of a folder, at the address of these sites."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / certificates.SERVER, folder / certificates.SERVER_KEY)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        for site in sites:
            address = f"127.0.0.1:{port}"
            site.connect(port, address, "127.0.0.1")

        def serve():
            while True:
                try:
                    line, _ = listener.accept()
                except OSError:
                    return
                with contextlib.suppress(OSError), line, context.wrap_socket(line, server_side=True) as safe:
                    safe.recv(4096)
                    safe.sendall(b"HTTP/1.1 204 none\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        monkeypatch.setattr(doctor.processes, "running", lambda site: {"superlink": 1})
        yield
        listener.shutdown(socket.SHUT_RDWR)


def server_check(folder):
    (check,) = [check for check in doctor._server(Site.inside(folder)) if check.name == "server"]
    return check


def test_an_expired_server_certificate(app, member, monkeypatch):
    expire(app, monkeypatch, server=True)
    (check,) = certificate_checks(app)
    assert check.found.startswith("the server's certificate (server.pem) expired on ")
    assert check.remedy == "`federation rotate` issues a new one; members need not act"
    assert not certificate_checks(member)
    with presented(Site.inside(app).certificates, monkeypatch, Site.inside(member), Site.inside(app)):
        assert "the certificate of the server at 127.0.0.1:" in server_check(member).found
        assert server_check(member).remedy == "ask its owner to run `federation rotate`; this host need not act"
        assert server_check(app).remedy == "`federation rotate`; members need not act"
        rotation.rotate(app, None, False)
    assert not certificate_checks(app)


def test_an_expired_authority(app, monkeypatch):
    expire(app, monkeypatch, authority=True)
    (check,) = certificate_checks(app)
    assert check.found.startswith("the authority's certificate (ca.pem) expired on ")
    assert check.remedy == "`federation rotate --new-authority`, then `federation invite NAME` for each member"
    expire(app, monkeypatch, authority=True, server=True)
    assert {check.remedy for check in certificate_checks(app)} == {check.remedy}
    with pytest.raises(ValueError, match=r"the authority expired on .*`federation rotate --new-authority`, then"):
        up(app, load_app(app))
    rotation.rotate(app, None, True)
    assert not certificate_checks(app)


def test_a_member_whose_authority_has_expired(app, member, monkeypatch):
    expire(app, monkeypatch, authority=True)
    (Site.inside(member).authority).write_bytes(Site.inside(app).authority.read_bytes())
    (check,) = certificate_checks(member)
    assert "the authority's certificate (ca.pem) expired on" in check.found
    assert check.remedy.startswith("the server's owner runs `federation rotate --new-authority`")
    with presented(Site.inside(app).certificates, monkeypatch, Site.inside(member)):
        assert "cannot be verified: the authority's certificate (ca.pem) expired" in server_check(member).found
        assert server_check(member).remedy == check.remedy


def test_a_server_of_another_authority_or_address(app, member, monkeypatch):
    other = app.parent / "other"
    certificates.make_authority(other)
    with presented(other, monkeypatch, Site.inside(member)):
        assert "of another authority" in server_check(member).found and "do not join" in server_check(member).remedy
    monkeypatch.setattr(certificates, "_general_name", lambda name: certificates_name(name))
    certificates.renew_server(Site.inside(app).certificates, [])
    with presented(Site.inside(app).certificates, monkeypatch, Site.inside(member)):
        assert "is for another address" in server_check(member).found


def certificates_name(name):
    from cryptography import x509

    return x509.DNSName(f"{name.replace('.', '-')}.example")


@pytest.mark.parametrize("name", ["server.pem", "server.key"])
@pytest.mark.parametrize("how", ["missing", "damaged", "another"])
def test_a_lost_server_certificate_is_issued_again_by_the_same_authority(app, name, how):
    path, before = Site.inside(app).certificates / name, files(app)
    if how == "missing":
        path.unlink()
    elif how == "damaged":
        path.write_bytes(b"-----BEGIN")
    else:
        certificates.make_authority(app.parent / "other", keep=True)
        path.write_bytes((app.parent / "other" / name).read_bytes())
    (check,) = certificate_checks(app)
    assert check.remedy == "`federation up` issues a new one; members need not act"
    Site.inside(app).prepare()
    assert {file: content for file, content in files(app).items() if file != name} == {
        file: content for file, content in before.items() if file != name
    }  # nothing happens silently
    assert up(app, load_app(app))["reissued"] == "was lost or damaged"
    after = files(app)
    assert (after["ca.pem"], after["ca.key"]) == (before["ca.pem"], before["ca.key"])
    assert not certificate_checks(app) and what(app) == ["address", "certificate"]
    assert "reissued" not in up(app, load_app(app))


def test_an_expired_server_certificate_is_issued_again_by_up(app, monkeypatch):
    expire(app, monkeypatch, server=True)
    assert up(app, load_app(app))["reissued"] == "had expired"


@pytest.mark.parametrize("lost", [("server.pem", "ca.key"), ("server.pem", "ca.pem"), ("ca.pem",)])
def test_without_the_authority_nothing_is_issued(app, lost):
    """Neither here nor by a command that comes by: members trust no other authority."""
    for name in lost:
        (Site.inside(app).certificates / name).unlink()
    before = files(app)
    missing = "ca.key" if "ca.key" in lost else "ca.pem"
    for _ in range(2):
        with pytest.raises(ValueError, match=rf"{missing}, the authority's .* is missing; .*--new-authority"):
            up(app, load_app(app))
    if missing == "ca.pem":
        with pytest.raises(ValueError, match=r"ca\.pem, by which members know the server, is missing"):
            server.invite(app, "south", 2, client=None, days=1.0, out=app.parent / "paper")
        with pytest.raises(ValueError, match=r"ca\.pem, the authority's certificate, is missing"):
            rotation.rotate(app, None, False)
    processes.stop(Site.inside(app))
    assert files(app) == before and what(app) == ["address"]
    assert any(missing in check.found or "--authority-key" in check.remedy for check in certificate_checks(app))
    assert [check.name for check in doctor.examine(app) if check.wrong].count("certificates") == len(
        certificate_checks(app)
    )
    rotation.rotate(app, None, True)  # wanted, and said
    assert not certificate_checks(app)


def test_a_member_that_lost_the_authoritys_certificate(member):
    Site.inside(member).authority.unlink()
    (check,) = certificate_checks(member)
    assert "ca.pem) is missing" in check.found and "`federation invite NAME`" in check.remedy
    assert [check.name for check in doctor.examine(member) if check.wrong] == ["certificates"]

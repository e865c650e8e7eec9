"""Membership after a failure halfway, a lost database or a damaged file: what is kept, and what can be repeated."""

import json
import subprocess

import pytest

pytest.importorskip("flwr", reason="the extra performative[flower] is not installed")

from performative.live import read_journal
from performative.live.app import write_app
from performative.live.loopback import certificates, processes, registration
from performative.live.loopback.commands import FederationError
from performative.live.loopback.site import Site
from performative.live.membership import server

ADDRESS, OTHER = "federation.bank.example:9443", "other.bank.example:9444"
# As Flower's command says it.
GONE = "`flwr supernode unregister` failed: [code: 24] Node ID not found for account."


@pytest.fixture
def app(tmp_path, monkeypatch):
    """A server's folder with an address; what would be stopped is noted, nothing is started."""
    stopped = []
    monkeypatch.setattr(processes, "stop", lambda site: stopped.append(site.address))
    monkeypatch.setattr(processes, "_is_free", lambda port, host="127.0.0.1": host in ("127.0.0.1", "0.0.0.0"))
    write_app(tmp_path / "banks", 2)
    server.set_address(tmp_path / "banks", ADDRESS, None)
    monkeypatch.setattr(processes, "running", lambda site: {"superlink": 1})
    stopped.clear()
    server.set_address.stopped = stopped
    return tmp_path / "banks"


@pytest.fixture
def member(app):
    """A member's public key; the member is registered."""
    site = Site.inside(app)
    public = certificates.make_key(app.parent / "keys" / "north.key")
    site.write_registry({0: {"public_key": public, "name": "north", "node_id": 41, "app": "0", "identity": "0"}})
    return public


def what(app):
    return [line["what"] for line in read_journal(app / ".federation" / "server")]


def names(app):
    return certificates.names_in(Site.inside(app).certificates / certificates.SERVER)


def answering(monkeypatch, module, **answers):
    """Flower's commands by their name; an exception is raised."""
    asked = []

    def flwr(site, *words):
        asked.append(words[1:])
        answer = answers[words[1]].pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(module, "flwr", flwr)
    return asked


def test_a_move_without_the_authoritys_key_changes_nothing_and_can_be_repeated(app):
    key = Site.inside(app).certificates / certificates.AUTHORITY_KEY
    key.rename(app.parent / "safe.key")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"copy it back, and run `federation up --address other.*--new-authority"):
            server.set_address(app, OTHER, None)
    assert Site.inside(app).address == ADDRESS and what(app) == ["address"] and not server.set_address.stopped
    (app.parent / "safe.key").rename(key)
    assert server.set_address(app, OTHER, None)
    assert Site.inside(app).address == OTHER and "other.bank.example" in names(app)
    assert what(app) == ["address", "address"] and server.set_address.stopped == [OTHER]
    assert not server.set_address(app, OTHER, None) and len(server.set_address.stopped) == 1


def test_the_remedy_for_a_lost_authoritys_key_works(app):
    (Site.inside(app).certificates / certificates.AUTHORITY_KEY).unlink()
    server.rotate(app, None, True)
    assert server.set_address(app, OTHER, None) and "other.bank.example" in names(app)


def test_a_certificate_that_lacks_the_address_is_renewed(app):
    site = Site.inside(app)
    authority = site.authority.read_bytes()
    certificates.renew_server(site.certificates, ["old.bank.example"])
    assert not server.set_address(app, ADDRESS, None)
    assert "federation.bank.example" in names(app) and site.authority.read_bytes() == authority
    assert what(app) == ["address", "certificate"] and server.set_address.stopped == [ADDRESS]


def test_an_address_that_cannot_be_used_stops_nothing(app, monkeypatch):
    with pytest.raises(ValueError, match=r"--listen must be an IPv4 address of this machine; 192\.0\.2\.1 is not"):
        server.set_address(app, OTHER, "192.0.2.1")
    with pytest.raises(ValueError, match=r"192\.0\.2\.1 is not.*0\.0\.0\.0 for all"):
        server.set_address(app, "192.0.2.1:9444", None)
    monkeypatch.setattr(processes, "_is_free", lambda port, host="127.0.0.1": port == 0)
    with pytest.raises(FederationError, match=r"cannot listen on 0\.0\.0\.0:9444: another program"):
        server.set_address(app, OTHER, None)
    assert Site.inside(app).address == ADDRESS and not server.set_address.stopped


def test_the_port_that_the_server_itself_uses_is_no_obstacle(app, monkeypatch):
    monkeypatch.setattr(processes, "_is_free", lambda port, host="127.0.0.1": port == 0)
    monkeypatch.setattr(processes, "living", lambda entry: 1)
    assert server.set_address(app, ADDRESS, "127.0.0.1") and Site.inside(app).listen == "127.0.0.1"


def test_an_address_of_no_machine_is_not_free(monkeypatch):
    assert processes._is_free(0, "0.0.0.0") and processes._is_free(0) and not processes._is_free(0, "192.0.2.1")


def test_the_address_stays_while_a_run_is_in_progress(app, monkeypatch):
    monkeypatch.setattr(server, "is_held", lambda folder: True)
    assert not server.set_address(app, ADDRESS, None)
    with pytest.raises(FederationError, match=r"a run is in progress, and the server must restart"):
        server.set_address(app, OTHER, None)
    assert Site.inside(app).address == ADDRESS and not server.set_address.stopped


def test_an_interrupted_expulsion_is_repeated(app, member, monkeypatch):
    asked = answering(monkeypatch, server, unregister=[FederationError(GONE)])
    assert server.expel(app, "north") == {"what": "expelled", "member": "north", "client": 0}
    assert asked == [("unregister", "41", "loopback")]
    assert not Site.inside(app).registry() and what(app)[-1] == "expelled"


def test_a_refused_expulsion_keeps_the_member(app, member, monkeypatch):
    answering(monkeypatch, server, unregister=[FederationError("gave no answer within 60 s")])
    with pytest.raises(FederationError, match="gave no answer"):
        server.expel(app, "north")
    assert Site.inside(app).registry() and "expelled" not in what(app)


def without_node(app):
    site = Site.inside(app)
    site.write_registry({0: site.registry()[0] | {"node_id": None}})
    return site


def test_a_member_without_a_node_is_expelled(app, member, monkeypatch):
    without_node(app)
    asked = answering(monkeypatch, server)
    assert server.expel(app, "north")["what"] == "expelled"
    assert not asked and not Site.inside(app).registry()


def test_members_are_registered_again_after_the_database_was_lost(app, member, monkeypatch):
    site = without_node(app)
    before = site.registry()[0]
    asked = answering(monkeypatch, registration, register=[{"node-id": "77"}])
    monkeypatch.setattr(processes, "_start_superlink", lambda site, largest: True)
    monkeypatch.setattr(processes, "_wait_for_superlink", lambda *_: None)
    for _ in range(2):
        processes.start_server(site)
    assert [words[0] for words in asked] == ["register"]
    assert site.registry()[0] == before | {"node_id": 77} and not (site.folder / "north.pub").exists()


@pytest.mark.parametrize(("others", "node"), [([], 77), ([{"node-id": "78", "status": "registered"}], None)])
def test_a_registration_that_was_not_written_down_is_found(app, member, monkeypatch, others, node):
    site = without_node(app)
    listed = [{"node-id": "77", "status": "online"}, {"node-id": "5", "status": "unregistered"}, *others]
    answering(
        monkeypatch, registration, register=[FederationError("Public key already in use.")], list=[{"nodes": listed}]
    )
    registration.register_members(site)
    assert site.registry()[0]["node_id"] == node


def test_an_authoritys_key_that_cannot_be_read_is_named(app):
    from cryptography.hazmat.primitives import serialization

    key = Site.inside(app).certificates / certificates.AUTHORITY_KEY
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    locked, junk = app.parent / "locked.key", app.parent / "junk.key"
    secret = serialization.BestAvailableEncryption(b"passphrase")
    form = serialization.PrivateFormat.PKCS8
    locked.write_bytes(private.private_bytes(serialization.Encoding.PEM, form, secret))
    junk.write_bytes(b"\x00junk")
    for path in (locked, junk):
        with pytest.raises(ValueError, match=rf"{path.name} must contain .* unencrypted PEM; .*openssl ec -in"):
            server.rotate(app, path, False)
    words = ["openssl", "ec", "-in", str(locked), "-passin", "pass:passphrase", "-out", str(app.parent / "open.key")]
    try:
        subprocess.run(words, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    server.rotate(app, app.parent / "open.key", False)


@pytest.mark.parametrize("content", [b"{1", b"", b"\xff\xfe", b"[]"])
@pytest.mark.parametrize("name", ["registry.json", "superlink.json", "invitations.json"])
def test_a_damaged_file_is_named(app, name, content):
    (app / ".federation" / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name} is damaged: .*; restore it from a backup\."):
        server.members(app), Site.inside(app).port()


def test_a_damaged_record_of_a_process_is_named(app, monkeypatch):
    monkeypatch.undo()
    site = Site.inside(app)
    site.process("superlink").write_text(json.dumps({"pid": 1})[:-1])
    with pytest.raises(ValueError, match=r"superlink\.json is damaged: .*; delete it, then run `federation down`"):
        processes.running(site)

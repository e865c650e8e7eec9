"""Membership after a failure halfway, a lost database or a damaged file: what is kept, and what can be repeated."""

import json
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra performative[flower] is not installed")

from performative.live import read_journal
from performative.live.app import load_app, up, write_app
from performative.live.loopback import certificates, processes, registration
from performative.live.loopback.commands import FederationError
from performative.live.loopback.site import Site
from performative.live.membership import host, papers, rotation, server

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
    assert what(app) == ["address", "address"] and server.set_address.stopped == [ADDRESS]
    assert not server.set_address(app, OTHER, None) and len(server.set_address.stopped) == 1


def test_the_remedy_for_a_lost_authoritys_key_works(app):
    (Site.inside(app).certificates / certificates.AUTHORITY_KEY).unlink()
    rotation.rotate(app, None, True)
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


def test_a_refused_expulsion_keeps_the_member_and_the_log_says_so(app, member, monkeypatch):
    answering(monkeypatch, server, unregister=[FederationError("gave no answer within 60 s"), {}])
    with pytest.raises(FederationError, match="gave no answer"):
        server.expel(app, "north")
    assert Site.inside(app).registry() and what(app)[-2:] == ["expelled", "not carried out"]
    last = read_journal(app / ".federation" / "server")[-1]["facts"]
    assert (last["decision"], last["reason"]) == ("expelled", "gave no answer within 60 s")
    server.expel(app, "north")
    assert not Site.inside(app).registry() and what(app)[-1] == "expelled"


@pytest.fixture
def asked(app):
    """A member's request for registration."""
    paper, path = app.parent / "north.invitation", app.parent / "north.request"
    server.invite(app, "north", 2, client=None, days=1.0, out=paper)
    host.take(papers.read_invitation(paper), app.parent / "north", None)
    host.write_request(app.parent / "north", papers.JOIN, path)
    return path


class Killed(BaseException):
    """Nothing after it happens."""


def killed_at(monkeypatch, module, name, call):
    """A kill instead of the n-th call of a function."""
    done, real = [], getattr(module, name)

    def die(*words, **options):
        done.append(words)
        if len(done) == call:
            raise Killed
        return real(*words, **options)

    monkeypatch.setattr(module, name, die)


@pytest.mark.parametrize(
    ("module", "name", "call"),
    [
        (server, "flwr", 1),  # logged, not registered
        (Site, "write_registry", 1),  # logged, not in the list
        (Site, "write_registry", 2),  # registered with Flower, its number is not written down
        (server, "_write_open", 1),  # all but the invitation, which is still open
    ],
)
def test_an_approval_is_logged_before_it_takes_effect_and_can_be_repeated(app, asked, monkeypatch, module, name, call):
    flower = answering(monkeypatch, server, register=[{"node-id": "77"}])
    in_use = FederationError("Public key already in use.")
    listed = [{"node-id": "77", "status": "registered"}]
    again = [{"node-id": "77"}] if name == "flwr" else [in_use]
    answering(monkeypatch, registration, register=again, list=[{"nodes": listed}])
    with monkeypatch.context() as patched, pytest.raises(Killed):
        killed_at(patched, module, name, call)
        server.approve(app, asked)
    assert what(app)[-1] == "approved"
    if call == 1 and name != "_write_open":
        assert not flower and all(one["node_id"] is None for one in Site.inside(app).registry().values())
    assert server.approve(app, asked)["what"] == "approved"
    (entry,) = Site.inside(app).registry().values()
    assert (entry["name"], entry["node_id"]) == ("north", 77)
    assert what(app) == ["address", "invited", "approved"]
    with pytest.raises(ValueError, match="north has no open invitation"):
        server.approve(app, asked)


def test_a_key_that_flower_knows_from_before_is_no_members(app, asked, monkeypatch):
    answering(monkeypatch, server, register=[FederationError("Public key already in use.")])
    with pytest.raises(ValueError, match="does not accept a key twice; run `federation invite north`"):
        server.approve(app, asked)
    assert not Site.inside(app).registry() and what(app)[-2:] == ["approved", "not carried out"]


def test_an_approval_without_an_answer_of_flower_is_repeated(app, asked, monkeypatch):
    answering(monkeypatch, server, register=[FederationError("gave no answer within 60 s")])
    answering(monkeypatch, registration, register=[{"node-id": "77"}])
    with pytest.raises(FederationError, match="approved but not registered yet; approve again: gave no answer"):
        server.approve(app, asked)
    server.approve(app, asked)
    assert Site.inside(app).registry()[0]["node_id"] == 77 and what(app) == ["address", "invited", "approved"]


@pytest.mark.parametrize(("module", "name"), [(server, "flwr"), (Site, "write_registry")])
def test_an_expulsion_is_logged_before_it_takes_effect(app, member, monkeypatch, module, name):
    answering(monkeypatch, server, unregister=[{}] if name == "flwr" else [{}, FederationError(GONE)])
    with monkeypatch.context() as patched, pytest.raises(Killed):
        killed_at(patched, module, name, 1)
        server.expel(app, "north")
    assert what(app)[-1] == "expelled" and Site.inside(app).registry()
    server.expel(app, "north")
    assert what(app) == ["address", "expelled"] and not Site.inside(app).registry()


def test_an_invitation_is_logged_before_it_is_withdrawn(app, asked, monkeypatch):
    with monkeypatch.context() as patched, pytest.raises(Killed):
        killed_at(patched, server, "_write_open", 1)
        server.expel(app, "north")
    assert what(app)[-1] == "invitation withdrawn" and server.members(app)


STEPS = ((rotation, "write_whole"), (rotation, "log_certificate"), (processes, "stop"), (rotation, "decide"),
         (certificates.os, "rename"), (certificates.os, "replace"))  # fmt: skip


@pytest.mark.parametrize("new_authority", [False, True])
@pytest.mark.parametrize(("module", "name"), STEPS)
def test_an_interrupted_rotation_is_finished_by_the_next(app, monkeypatch, module, name, new_authority):
    """One certificate, one line of the log, and the server is to be started again."""
    folder, issued = Site.inside(app).certificates, []
    before = {path.name: path.read_bytes() for path in folder.glob("*.*")}
    for kind in ("stage_authority", "stage_server"):
        stage = getattr(rotation, kind)
        monkeypatch.setattr(rotation, kind, lambda *told, stage=stage, **more: issued.append(1) or stage(*told, **more))
    with monkeypatch.context() as patched, pytest.raises(Killed):
        last = 2 if name == "replace" else 1  # between two of the files
        if name == "replace":
            patched.setattr(rotation, "write_whole", lambda path, content: path.write_bytes(content))
            patched.setattr(rotation, "log_certificate", lambda journal, told: None)
        killed_at(patched, module, name, last)
        rotation.rotate(app, None, new_authority)
    monkeypatch.setattr(processes, "running", lambda site: {})  # it was stopped, or died
    begun = (Site.inside(app).folder / "rotation.json").exists()
    found = rotation.rotate(app, None, new_authority and not begun)
    assert found["new_authority"] == new_authority and found["restart"] == begun
    assert len(issued) == (1 if begun else 2)
    after = {path.name: path.read_bytes() for path in folder.glob("*.*")}
    assert certificates.is_signed_by_authority(folder) and after["server.pem"] != before["server.pem"]
    assert (after["ca.pem"] != before["ca.pem"]) == (after["ca.key"] != before["ca.key"]) == new_authority
    assert {path.name for path in folder.iterdir()} == before.keys()
    if name != "replace":
        assert what(app) == ["address", "certificate"]
    certificates.renew_server(folder, [])  # the authority's key is that of the authority
    rotation.end_rotation(app)
    assert not (Site.inside(app).folder / "rotation.json").exists()


def test_up_finishes_an_interrupted_rotation(app, monkeypatch):
    folder = Site.inside(app).certificates
    before = (folder / "server.pem").read_bytes()
    with monkeypatch.context() as patched, pytest.raises(Killed):
        killed_at(patched, processes, "stop", 1)
        rotation.rotate(app, None, False)
    assert (folder / "server.pem").read_bytes() == before
    monkeypatch.setattr(processes, "start_server", lambda *told: None)
    up(app, load_app(app))
    assert (folder / "server.pem").read_bytes() != before and what(app) == ["address", "certificate"]
    assert not (Site.inside(app).folder / "rotation.json").exists()


def test_an_interrupted_leave_is_finished(app, asked, monkeypatch):
    """Killed after the record says that it has left: the key goes at the second call, which writes the request too."""
    folder, out = app.parent / "north", app.parent / "north.leave"
    key, unlink = Site.inside(folder).key(0), Path.unlink

    def die(path, **options):
        if path == key:
            raise Killed
        unlink(path, **options)

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Path, "unlink", die)
        host.leave(folder, out)
    assert host.member_status(folder)["state"] == "left" and key.exists()
    out.unlink()
    host.leave(folder, out)
    assert out.exists() and not key.exists()
    with pytest.raises(ValueError, match="north has already left"):
        host.leave(folder, out)


def test_a_member_that_lost_its_key_is_told_how_to_leave(app, asked):
    Site.inside(app.parent / "north").key(0).unlink()
    with pytest.raises(ValueError, match=r"the key of north is missing, .*federation expel north"):
        host.leave(app.parent / "north", app.parent / "north.leave")


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
            rotation.rotate(app, path, False)
    words = ["openssl", "ec", "-in", str(locked), "-passin", "pass:passphrase", "-out", str(app.parent / "open.key")]
    try:
        subprocess.run(words, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    rotation.rotate(app, app.parent / "open.key", False)


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

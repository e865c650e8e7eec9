"""Invitations, requests and approvals without a network: what is refused, what is logged, and what stays secret."""

import json
import shutil
import stat
import time
from importlib.util import cache_from_source
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra performative[flower] is not installed")
from typer.testing import CliRunner

from performative.cli.app import app as commands
from performative.live import read_journal, verify_journal
from performative.live.app import write_app
from performative.live.journal import Journal
from performative.live.loopback import certificates
from performative.live.loopback.commands import FederationError
from performative.live.loopback.site import Site
from performative.live.membership import doctor, host, papers, rotation, server, validity

ADDRESS = "federation.bank.example:9443"


@pytest.fixture
def app(tmp_path, monkeypatch):
    """A server's folder with an address; Flower's answers are made up."""
    write_app(tmp_path / "banks", 2)
    server.set_address(tmp_path / "banks", ADDRESS, None)
    asked = []

    def flwr(site, *words):
        asked.append(words)
        return {"node-id": 40 + len(asked)}

    monkeypatch.setattr(server, "flwr", flwr)
    monkeypatch.setattr(server.processes, "running", lambda site: {"superlink": 1})
    monkeypatch.chdir(tmp_path)
    flwr.asked = asked
    return tmp_path / "banks"


def invited(app, name="north", **options):
    path = app.parent / f"{name}-{time.monotonic_ns()}"
    server.invite(app, name, 2, **{"client": None, "days": 1.0, "out": path} | options)
    return papers.read_invitation(path)


def requested(app, invitation):
    folder = app.parent / invitation.name
    host.take(invitation, folder, None)
    path = app.parent / f"{invitation.name}.request"
    path.unlink(missing_ok=True)
    return path, host.write_request(folder, papers.JOIN, path)


def what(app):
    return [line["what"] for line in read_journal(app / ".federation" / "server")]


def test_from_an_invitation_to_a_member(app):
    invitation = invited(app)
    assert (invitation.address, invitation.client, invitation.clients) == (ADDRESS, 0, 2)
    path, read = requested(app, invitation)
    assert server.approve(app, path, read)["client"] == 0
    registry = Site.inside(app).registry()
    assert registry[0]["name"] == "north" and registry[0]["node_id"] == 41
    assert registry[0]["public_key"] == Site.inside(app.parent / "north").registry()[0]["public_key"]
    assert what(app) == ["address", "invited", "approved"]
    assert verify_journal(app / ".federation" / "server").sound
    assert [one["state"] for one in server.members(app)] == ["registered"]
    assert invited(app, "south").client == 1
    assert server.expel(app, "north") == {"what": "expelled", "member": "north", "client": 0}
    assert server.expel(app, "south")["what"] == "invitation withdrawn"
    assert what(app)[-2:] == ["expelled", "invitation withdrawn"] and not Site.inside(app).registry()


def test_papers_hold_no_secret_of_others(app):
    path = app.parent / "paper"
    server.invite(app, "north", 2, client=None, days=1.0, out=path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text()
    for secret in (app / ".federation").rglob("*.key"):
        content = secret.read_bytes()
        assert content.hex() not in text and "PRIVATE" not in text
    invitation = papers.read_invitation(path)
    asked, _ = requested(app, invitation)
    assert invitation.token not in asked.read_text() and "PRIVATE" not in asked.read_text()
    assert stat.S_IMODE(Site.inside(app.parent / "north").key(0).stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["address", "authority", "client", "app", "token", "federation"])
def test_a_changed_invitation_is_refused(app, name):
    path = app.parent / "paper"
    server.invite(app, "north", 2, client=None, days=1.0, out=path)
    facts = json.loads(path.read_text())
    facts[name] = 1 if name == "client" else facts[name][:-2] + "11"
    path.write_text(json.dumps(facts))
    with pytest.raises(ValueError, match=r"changed after it was signed|not a valid invitation"):
        papers.read_invitation(path)


@pytest.mark.parametrize("name", ["public_key", "client", "app", "proof", "name", "identity"])
def test_a_changed_request_is_refused(app, name):
    path, _ = requested(app, invited(app))
    facts = json.loads(path.read_text())
    facts[name] = 1 if name == "client" else facts[name][:-2] + "11"
    path.write_text(json.dumps(facts))
    with pytest.raises(ValueError, match="not signed with the key that it names"):
        server.approve(app, path)
    assert "approved" not in what(app)


def resigned(folder, **changes):
    """A request with other facts, by somebody who has the key but not the token."""
    invitation = invited(folder)
    path, _ = requested(folder, invitation)
    site = Site.inside(folder.parent / "north")
    facts = {
        k: v for k, v in json.loads(path.read_text()).items() if k not in ("signature", "proof", "public_key", "kind")
    }
    token = changes.pop("token", invitation.token)
    path.write_text(json.dumps(papers.make_request(papers.JOIN, site.key(0), facts | changes, token)))
    return path


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"token": "00" * 32}, "does not match its last invitation"),
        ({"token": ""}, "does not match its last"),
        ({"app": "0" * 64}, "agreed to a different app"),
        ({"client": 1}, "another federation or client number"),
        ({"federation": "0" * 64}, "another federation"),
        ({"name": "south"}, "south has no open invitation"),
        ({"identity": 5}, "has no identity"),
    ],
)
def test_a_request_that_does_not_answer_to_the_invitation(app, changes, says):
    path = resigned(app, **changes)
    with pytest.raises(ValueError, match=says):
        server.approve(app, path)
    assert "approved" not in what(app) and not Site.inside(app).registry()


def test_an_invitation_is_good_once_and_not_for_ever(app, monkeypatch):
    path, _ = requested(app, invited(app))
    with pytest.raises(ValueError, match="--fingerprint"):
        server.approve(app, path, "0000 " * 8)
    server.approve(app, path)
    with pytest.raises(ValueError, match=r"north has no open invitation: it was used .*`federation invite north`"):
        server.approve(app, path)
    with pytest.raises(ValueError, match="west is not a member; members: north"):
        server.expel(app, "west")
    late, _ = requested(app, invited(app, "south"))
    monkeypatch.setattr(server.time, "time", lambda: 4e9)
    with pytest.raises(ValueError, match="has expired"):
        server.approve(app, late)


def test_a_second_invitation_voids_the_first(app):
    first = invited(app)
    path, _ = requested(app, first)
    invited(app)
    with pytest.raises(ValueError, match="last invitation"):
        server.approve(app, path)


def test_a_key_of_another_member_is_refused(app):
    path, _ = requested(app, invited(app))
    server.approve(app, path)
    thief, invitation = Site.inside(app.parent / "south"), invited(app, "south")
    host.take(invitation, app.parent / "south", None)
    thief.key(1).write_bytes(Site.inside(app.parent / "north").key(0).read_bytes())
    host.write_request(app.parent / "south", papers.JOIN, app.parent / "stolen")
    with pytest.raises(ValueError, match="belongs to another member"):
        server.approve(app, app.parent / "stolen")


def test_an_identity_of_another_member_is_refused(app):
    """It would count twice in a sum, or sign for another."""
    path, _ = requested(app, invited(app))
    server.approve(app, path)
    identity = json.loads(path.read_text())["identity"]
    invitation = invited(app, "south")
    host.take(invitation, app.parent / "south", None)
    (Site.inside(app.parent / "south").state(1) / "identity.pub").write_text(identity)
    host.write_request(app.parent / "south", papers.JOIN, app.parent / "copied")
    with pytest.raises(ValueError, match="belongs to another member; ask south to join with its own keys"):
        server.approve(app, app.parent / "copied")


def test_a_member_is_brought_up_to_date_and_agrees_to_a_new_app(app):
    path, _ = requested(app, invited(app))
    server.approve(app, path)
    folder = app.parent / "north"
    key = Site.inside(folder).key(0).read_bytes()
    server.set_address(app, "other.bank.example:9444", None)
    again = invited(app)
    assert not again.token and host.take(again, folder, None) == "changed"
    assert Site.inside(folder).address == "other.bank.example:9444" and Site.inside(folder).key(0).read_bytes() == key
    assert host.take(again, folder, None) == "known"
    (app / "app.py").write_text("raise SystemExit('run')\n")
    assert server.changed_for(app) == ["north"]
    changed = invited(app)
    with pytest.raises(ValueError, match=f"accept it with --accept {changed.app_hash[:12]}"):
        host.take(changed, folder, None)
    with pytest.raises(ValueError, match="--accept"):
        host.take(changed, folder, "35bfeb7b231d")
    proposed = Site.inside(folder).folder / "proposed-app" / "app.py"
    assert "SystemExit" in proposed.read_text() and "SystemExit" not in (folder / "app.py").read_text()
    assert host.take(changed, folder, changed.app_hash[:12]) == "changed"
    assert "SystemExit" in (folder / "app.py").read_text()
    with pytest.raises(ValueError, match="older than the one"):
        host.take(again, folder, None)


def test_an_update_leaves_the_members_own_files(app):
    """Tables and notes stay; files that the app no longer has go, with the folders left empty."""
    for name in ("models/deep/old.py", "models/kept.py"):
        (app / name).parent.mkdir(parents=True, exist_ok=True)
        (app / name).write_text("x = 1\n")
    path, _ = requested(app, invited(app))
    server.approve(app, path)
    folder = app.parent / "north"
    for name in ("tables/north.csv", "notes.md", cache_from_source("models/deep/old.py")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")
    (folder / "elsewhere").symlink_to(app.parent, target_is_directory=True)
    shutil.rmtree(app / "models" / "deep")
    (app / "app.py").write_text("x = 2\n")
    changed = invited(app)
    assert host.take(changed, folder, changed.app_hash[:12]) == "changed"
    assert (folder / "app.py").read_text() == "x = 2\n" and (folder / "models" / "kept.py").exists()
    assert (folder / "tables" / "north.csv").read_text() == (folder / "notes.md").read_text() == "mine"
    assert (folder / "elsewhere").is_symlink() and not (folder / "models" / "deep").exists()


def test_an_update_that_would_replace_a_members_file_changes_nothing(app, monkeypatch):
    path, _ = requested(app, invited(app))
    server.approve(app, path)
    folder = app.parent / "north"
    (folder / "notes.md").write_text("mine")
    (app / "notes.md").write_text("theirs")
    (app / "app.py").write_text("x = 2\n")
    changed, before = invited(app), (folder / "app.py").read_text()
    monkeypatch.setattr(host.processes, "stop", lambda site: pytest.fail("the node was stopped"))
    with pytest.raises(ValueError, match=r"notes.md is not a file of the earlier app.*move it elsewhere"):
        host.take(changed, folder, changed.app_hash[:12])
    assert (folder / "notes.md").read_text() == "mine" and (folder / "app.py").read_text() == before
    monkeypatch.setattr(host.processes, "stop", lambda site: None)
    (folder / "notes.md").unlink()
    assert host.take(changed, folder, changed.app_hash[:12]) == "changed"
    assert (folder / "notes.md").read_text() == "theirs"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("nowhere", None), "--data: nowhere is not a folder"),
        ((None, "nowhere"), "--address must be HOST:PORT"),
        (("nowhere", "other.example:9444"), "--data: nowhere"),
    ],
)
def test_a_slip_leaves_the_node_running_and_the_record_as_it_was(app, monkeypatch, options, says):
    requested(app, invited(app))
    folder = app.parent / "north"
    record = (folder / ".federation" / "member.json").read_bytes()
    monkeypatch.setattr(host.processes, "stop", lambda site: pytest.fail("the node was stopped"))
    data, address = options
    with pytest.raises(ValueError, match=says):
        host.start(folder, data and Path(data), address)
    assert (folder / ".federation" / "member.json").read_bytes() == record
    assert Site.inside(folder).address == ADDRESS


def test_a_lost_request_is_written_again_until_the_server_lets_the_node_in(app, monkeypatch):
    server.invite(app, "north", 2, client=None, days=1.0, out=app.parent / "paper")
    runner, started = CliRunner(), []
    monkeypatch.setattr(host, "start", lambda *told: started.append(told) or True)
    first = runner.invoke(commands, ["federation", "join", "paper", "--data", "my tables"])
    assert first.exit_code == 0 and "join --app north --data 'my tables'" in " ".join(first.output.split())
    (app.parent / "north.request").unlink()
    again = json.loads(runner.invoke(commands, ["federation", "join", "paper", "--json"]).stdout)
    assert again["state"] == "requested" and again["again"] and not started
    assert server.approve(app, app.parent / "north.request", again["fingerprint"])["client"] == 0
    assert "with the same key" in " ".join(runner.invoke(commands, ["federation", "join", "paper"]).output.split())
    site = Site.inside(app.parent / "north")
    site.write_registry({0: site.registry()[0] | {"node_id": 41}})
    assert runner.invoke(commands, ["federation", "join", "paper"]).exit_code == 0 and len(started) == 1


def test_an_output_is_checked_before_anything_changes(app, monkeypatch):
    requested(app, invited(app))
    monkeypatch.setattr(host.processes, "stop", lambda site: pytest.fail("the node was stopped"))
    for words in (("leave", "--app", "north"), ("invite", "south", "--app", "banks")):
        result = CliRunner().invoke(commands, ["federation", *words, "--out", "nowhere/x"])
        said = " ".join(result.output.split())
        assert result.exit_code == 2 and "--out nowhere/x: there is no folder" in said and ".part" not in said
    assert [one["member"] for one in server.members(app)] == ["north"]


def test_the_federations_key_is_compared(app):
    runner = CliRunner()
    made = json.loads(runner.invoke(commands, ["federation", "invite", "north", "--app", "banks", "--json"]).stdout)
    read = made["federation_fingerprint"]
    assert read == papers.federation_fingerprint(made["federation"]) and len(read.split()) == 8
    join = ["federation", "join", "north.invitation", "--fingerprint"]
    wrong = runner.invoke(commands, [*join, "0000 " * 8])
    assert wrong.exit_code == 2 and f"has the fingerprint {read}" in " ".join(wrong.output.split())
    assert not (app.parent / "north").exists()
    said = runner.invoke(commands, [*join, read.upper().replace(" ", "")])
    assert said.exit_code == 0 and f"The federation's key is {read}" in " ".join(said.output.split())


def test_another_server_cannot_send_a_member_elsewhere(app, tmp_path):
    requested(app, invited(app))
    write_app(tmp_path / "others", 2)
    server.set_address(tmp_path / "others", "evil.example:9443", None)
    with pytest.raises(ValueError, match="not signed with the same key"):
        host.take(invited(tmp_path / "others"), app.parent / "north", None)


@pytest.mark.parametrize(
    "changes", [{"address": "--insecure:1"}, {"address": "a.example:9\nb"}, {"address": "a.example:٩"},
                {"client": 7}, {"client": -1}, {"token": "zz"}, {"name": "../x"}, {"name": "a/b"}],
)  # fmt: skip
def test_a_signed_invitation_with_nonsense_is_refused(app, changes):
    """The server's owner may be mistaken, or worse."""
    path = app.parent / "paper"
    server.invite(app, "north", 2, client=None, days=1.0, out=path)
    facts = json.loads(path.read_text()) | changes
    del facts["signature"]
    journal = Journal(app / ".federation" / "server")
    path.write_text(json.dumps(facts | {"signature": journal.sign(papers.text_of(facts))}))
    with pytest.raises(ValueError, match=r"changed after it was signed|not a valid invitation"):
        papers.read_invitation(path)


def test_leaving_is_for_good_and_logged(app):
    path, _ = requested(app, invited(app))
    server.approve(app, path)
    folder = app.parent / "north"
    host.leave(folder, app.parent / "left")
    assert not Site.inside(folder).key(0).exists() and host.member_status(folder)["state"] == "left"
    with pytest.raises(ValueError, match="has left the federation"):
        host.start(folder, None, None)
    assert server.approve(app, app.parent / "left")["what"] == "left"
    assert what(app)[-1] == "left"
    with pytest.raises(ValueError, match="not a member with that key"):
        server.approve(app, app.parent / "left")


def test_the_server_must_run_to_approve(app, monkeypatch):
    path, _ = requested(app, invited(app))
    monkeypatch.setattr(server.processes, "running", lambda site: {})
    with pytest.raises(FederationError, match="the server is not running"):
        server.approve(app, path)


def test_certificates_are_renewed_under_the_same_authority(app, tmp_path, monkeypatch):
    monkeypatch.setattr(server.processes, "running", lambda site: {})
    folder = Site.inside(app).certificates
    authority, first = (folder / "ca.pem").read_bytes(), (folder / "server.pem").read_bytes()
    assert stat.S_IMODE((folder / "ca.key").stat().st_mode) == 0o600
    rotation.rotate(app, None, False)
    assert (folder / "ca.pem").read_bytes() == authority and (folder / "server.pem").read_bytes() != first
    assert certificates.is_signed_by_authority(folder)
    assert certificates.names_in(folder / "server.pem") >= {"federation.bank.example", "127.0.0.1"}
    (folder / "ca.key").rename(tmp_path / "safe.key")
    with pytest.raises(ValueError, match=r"--authority-key FILE.*--new-authority"):
        rotation.rotate(app, None, False)
    rotation.rotate(app, tmp_path / "safe.key", False)
    certificates.make_authority(tmp_path / "other", keep=True)
    with pytest.raises(ValueError, match="is not the key of the authority"):
        rotation.rotate(app, tmp_path / "other" / "ca.key", False)
    rotation.rotate(app, None, True)
    assert (folder / "ca.pem").read_bytes() != authority
    assert what(app)[-1] == "certificate"


def test_an_end_that_is_near_is_said(app, monkeypatch):
    site = Site.inside(app)
    requested(app, invited(app))
    member = Site.inside(app.parent / "north")
    assert validity.certificate_warnings(site) == validity.certificate_warnings(member) == []
    monkeypatch.setattr(certificates, "RENEW_BEFORE", certificates.LIFETIME)
    (said,) = validity.certificate_warnings(site)
    assert said.startswith("the server's certificate (server.pem) expires on ") and "`federation rotate` issues" in said
    monkeypatch.setattr(certificates, "RENEW_BEFORE", certificates.AUTHORITY_LIFETIME)
    said = validity.certificate_warnings(site)
    assert len(said) == 2 and all("`federation rotate --new-authority`" in one for one in said)
    (said,) = host.member_lines(host.member_status(app.parent / "north"))[2:]
    assert "the authority's certificate (ca.pem) expires" in said and "`federation join FILE`" in said
    with pytest.raises(ValueError, match="the authority itself expires"):
        rotation.rotate(app, None, False)


def test_two_processes_write_one_log(tmp_path):
    one, two = Journal(tmp_path), Journal(tmp_path)
    for number in range(3):
        one.write("round", run="a", round=number + 1)
        two.write("approved", member=f"m{number}")
    assert verify_journal(tmp_path).sound
    assert [line["what"] for line in read_journal(tmp_path)] == ["round", "approved"] * 3


def test_a_node_runs_the_pinned_app_alone(app, tmp_path, monkeypatch):
    """In Flower's own terms: another app is not even fetched; what the server says of ours is not used."""
    import contextlib

    from flwr.supercore.run import Run
    from flwr.supernode import start_client_internal as node

    from performative.live.loopback.upstream import pin_app

    for name in ("http_request_response", "_pull_and_store_message", "_verify_fab", "FAB_VERIFICATION_ERROR"):
        monkeypatch.setattr(node, name, getattr(node, name))  # all are there, and are put back

    @contextlib.contextmanager
    def connect():
        def run_of(run_id):
            told = Run.create_empty(run_id)
            told.fab_id, told.fab_version, told.primary_task_type = "../evil/x", "9", "agent"
            return told

        def never(*_):
            raise AssertionError("the server's app was fetched")

        yield (1, None, None, run_of, never, None, None, None)

    monkeypatch.setattr(node, "http_request_response", connect)
    monkeypatch.setattr(node, "_pull_and_store_message", lambda **told: told["trusted_entities"])
    invitation = invited(app)
    (tmp_path / "app.fab").write_bytes(invitation.app)
    pin_app(tmp_path / "app.fab")
    trusted = node._pull_and_store_message(trusted_entities=None)
    with node.http_request_response() as (_, _, _, get_run, get_fab, *_):
        told = get_run(7)
        assert (told.fab_id, told.fab_version, told.primary_task_type) == (
            "performative/credit-federation",
            "1.0.0",
            "",
        )
        assert node._verify_fab(get_fab(invitation.app_hash, 7), trusted)
        other = get_fab("0" * 64, 7)
        assert other.content == b"" and not node._verify_fab(other, trusted)
    assert "agreed to run the app" in node.FAB_VERIFICATION_ERROR.reason


def test_the_doctor_names_what_is_wrong_and_the_remedy(app, monkeypatch):
    monkeypatch.undo()
    found = doctor.examine(app)
    assert [check.name for check in found if check.wrong] == ["server"]
    (app / ".federation" / "server" / "journal.key").chmod(0o644)
    monkeypatch.setattr(doctor, "_ROOM", 1 << 60)
    monkeypatch.setattr(certificates, "RENEW_BEFORE", certificates.AUTHORITY_LIFETIME)
    wrong = {check.name: check for check in doctor.examine(app) if check.wrong}
    assert set(wrong) == {"permissions", "disk", "certificates", "server"}
    assert "journal.key" in wrong["permissions"].found and wrong["permissions"].remedy.startswith("chmod 600 ")
    result = CliRunner().invoke(commands, ["federation", "doctor", "--app", str(app)])
    assert result.exit_code == 1 and "Remedy: chmod 600" in " ".join(result.output.split())


def test_the_doctor_of_a_member_that_reaches_nobody(app, monkeypatch):
    requested(app, invited(app))
    monkeypatch.undo()
    folder = app.parent / "north"
    record = folder / ".federation" / "member.json"
    told = json.loads(record.read_text())
    record.write_text(
        json.dumps(told | {"versions": {"flwr": "0.1", "performative": told["versions"]["performative"]}})
    )
    site = Site.inside(folder)
    site.connect(9, "127.0.0.1:9")
    wrong = {check.name: check for check in doctor.examine(folder) if check.wrong}
    assert set(wrong) == {"server", "versions"} and "pip install flwr==0.1" in wrong["versions"].remedy
    assert "cannot be reached" in wrong["server"].found


def test_the_doctor_of_one_that_is_no_member_anymore(app, monkeypatch):
    requested(app, invited(app))
    folder = app.parent / "north"
    site = Site.inside(folder)
    monkeypatch.setattr(doctor, "_server", lambda site: [])

    def found():
        return {check.name: check for check in doctor.examine(folder)}

    assert not found()["membership"].wrong
    (site.folder / "refused.json").write_text("{}")
    assert "has not approved north" in found()["membership"].found
    site.write_registry({0: site.registry()[0] | {"node_id": 41}})
    assert "no longer accepts north" in found()["membership"].found
    host.leave(folder, app.parent / "left")
    assert "has left" in found()["membership"].found and "federation invite north" in found()["membership"].remedy


def test_the_doctor_finds_answers_that_others_may_read(app, monkeypatch):
    requested(app, invited(app))
    monkeypatch.setattr(doctor, "_server", lambda site: [])
    path = Site.inside(app.parent / "north").state(0) / "memory.bin"
    path.write_bytes(b"")
    path.chmod(0o644)
    (wrong,) = [check for check in doctor.examine(app.parent / "north") if check.wrong]
    assert wrong.name == "permissions" and wrong.remedy == f"chmod 600 {path}"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("invite", "north"), "no address at which members could reach it"),
        (("invite", "a/b"), "no address"),
        (("join",), "not a member's folder"),
        (("join", "nowhere"), "there is no file nowhere"),
        (("approve", "pyproject.toml"), "no address"),
        (("expel", "north"), "no address"),
        (("leave",), "not a member's folder"),
        (("rotate",), "no address"),
        (("doctor",), "no federation yet"),
        (("up", "--listen", "127.0.0.1"), "also pass --address"),
        (("up", "--address", "nowhere"), "--address must be HOST:PORT"),
        (("up", "--address", "a.example:9443", "--listen", "b.example"), "--listen must be an IPv4 address"),
    ],
)
def test_slips_on_the_command_line(words, says, tmp_path, monkeypatch):
    write_app(tmp_path / "banks", 2)
    monkeypatch.chdir(tmp_path / "banks")
    result = CliRunner().invoke(commands, ["federation", *words])
    assert result.exit_code == 2, result.output
    assert says in " ".join(result.output.split()) and "Traceback" not in result.output

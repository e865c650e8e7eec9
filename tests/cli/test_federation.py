"""`performative federation` without a network: what it writes, rehearses, and refuses."""

import json
import tomllib

import pytest
from typer.testing import CliRunner

from performative.cli.app import app


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*words):
        return CliRunner().invoke(app, ["federation", *words])

    return run


@pytest.fixture
def folder(call, tmp_path):
    assert call("init", "banks", "--clients", "2").exit_code == 0
    text = (tmp_path / "banks" / "federation.toml").read_text()
    (tmp_path / "banks" / "federation.toml").write_text(text.replace("rounds = 20", "rounds = 2"))
    return tmp_path / "banks"


def test_init_writes_a_ready_folder(folder, call):
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md",
        "app.py",
        "federation.toml",
        "pyproject.toml",
    ]
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["tool"]["flwr"]["app"]["components"] == {"serverapp": "app:server", "clientapp": "app:client"}
    assert "banks = 2" in (folder / "federation.toml").read_text()
    again = call("init", "banks")
    assert again.exit_code == 2
    assert "give another name" in again.output


def test_rehearse_runs_the_same_app(folder, call):
    pytest.importorskip("flwr", reason="the extra performative[flower] is not installed")
    result = call("rehearse", "--app", "banks", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout.splitlines()[-1]) | {"status": "completed", "round": 2}
    assert "round 1: 2 of 2 responded" in result.stderr


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("run", "--app", "banks"), 1, "nothing is running"),
        (("run", "--app", "nowhere"), 1, "nothing is running"),
        (("rehearse", "--app", "nowhere"), 2, "it has no app.py"),
        (("up", "--app", "banks", "--clients", "5"), 2, "has 2 clients"),
        (("rollback", "3", "--app", "banks"), 1, "there is no run"),
        (("rollback", "--to", "3", "--app", "banks"), 1, "there is no run"),
        (("verify", "--app", "banks"), 1, "there is no run"),
        (("init", "other", "--clients", "0"), 2, "--clients must be"),
        (("run", "--app", "banks", "--rounds", "0"), 2, "--rounds must be"),
        (("rehearse", "--app", "banks", "--rounds", "0"), 2, "--rounds must be"),
        (("run", "--app", "banks", "--resume", "--new"), 2, "pass only one"),
        (("status", "--app", "nowhere"), 2, "it has no app.py"),
    ],
)
def test_slips(folder, call, words, code, says):
    pytest.importorskip("flwr", reason="the extra performative[flower] is not installed")
    result = call(*words)
    assert result.exit_code == code, result.output
    assert says in " ".join(result.output.split())


def test_status_and_down_of_what_never_ran(folder, call):
    pytest.importorskip("flwr", reason="the extra performative[flower] is not installed")
    status = call("status", "--app", "banks", "--json")
    assert json.loads(status.stdout)["run"] is None
    down = call("down", "--app", "banks")
    assert (down.exit_code, down.output.strip()) == (0, "Nothing was running.")


def test_a_file_that_is_wrong_is_named(folder, call):
    pytest.importorskip("flwr", reason="the extra performative[flower] is not installed")
    path = folder / "federation.toml"
    path.write_text(path.read_text().replace("timeout = 60", "timeout = -3"))
    result = call("rehearse", "--app", "banks")
    assert result.exit_code == 2
    assert "federation.timeout: timeout must be a finite number above 0" in " ".join(result.output.split())

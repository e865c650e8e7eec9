"""`performative data list|get|path`."""

import json

import pytest
import typer
from typer.testing import CliRunner

from performative.cli.data import data

app = typer.Typer()
app.add_typer(data)


@app.callback()
def top() -> None:
    """As in the real program, commands stand below a name."""


def invoke(*words):
    return CliRunner().invoke(app, ["data", *(str(word) for word in words)])


def test_list_says_where_each_set_is(bare, tmp_path, monkeypatch):
    mine = tmp_path / "mine" / "adult"
    mine.mkdir(parents=True)
    for name in ("adult.data", "adult.test.gz"):
        (mine / name).touch()
    (mine.parent / "data_batch_2.bin").touch()
    monkeypatch.setenv("PERFORMATIVE_DATA", str(tmp_path / "mine"))
    (bare / "give_me_some_credit").mkdir(parents=True)
    (bare / "give_me_some_credit" / "cs-training.csv").touch()
    done = invoke("list", "--json")
    told = {row["name"]: row for row in json.loads(done.stdout)["sets"]}
    assert {name: row["where"] for name, row in told.items()} == {
        "credit": "cached", "adult": "path", "fashion_mnist": "not here", "cifar10": "path",
        "digits": "bundled", "breast_cancer": "bundled", "iris": "bundled", "wine": "bundled", "diabetes": "bundled",
    }  # fmt: skip
    assert told["adult"]["path"] == str(mine) and told["fashion_mnist"]["path"] is None
    assert {name for name, row in told.items() if not row["complete"]} == {"fashion_mnist", "cifar10"}
    assert told["fashion_mnist"]["license"] == "MIT" and told["credit"]["shape"] == [150_000, 10]
    shown = invoke("list").stdout
    assert "48,842 x 14" in shown and "not here" in shown and "path, partial" in shown and "CC BY 4.0" in shown


def test_get_checks_and_prints_the_path(published, monkeypatch):
    monkeypatch.setenv("PERFORMATIVE_DATA", str(published))
    for name, folder, rows in (("adult", "adult", 48_842), ("credit", "give_me_some_credit", 150_000)):
        if not (published / folder).is_dir():
            pytest.skip(f"{published} has no {folder}")
        done = invoke("get", name, "--json")
        told = json.loads(done.stdout)
        assert done.exit_code == 0 and told["path"] == str(published / folder) and told["rows"] == rows
        assert told["where"] == "path" and told["complete"]
    assert str(published / "adult") in invoke("get", "adult").stdout
    assert json.loads(invoke("get", "iris", "--json").stdout)["where"] == "bundled"


def test_path_downloads_nothing(bare):
    assert invoke("path").stdout.split() == ["path", str(bare)]
    assert json.loads(invoke("path", "--json").stdout)["path"] == str(bare)
    done = invoke("path", "credit", "--json")
    assert done.exit_code == 1 and "performative data get credit" in json.loads(done.stdout)["error"]["message"]
    assert not bare.exists()
    assert json.loads(invoke("path", "digits", "--json").stdout)["where"] == "bundled"


@pytest.mark.parametrize("command", ["get", "path"])
def test_an_unknown_name_is_answered_with_the_nearest(command, bare):
    done = invoke(command, "cifar", "--json")
    assert done.exit_code == 2 and "Did you mean 'cifar10'?" in json.loads(done.stdout)["error"]["message"]


def test_bad_files_end_with_code_1_and_a_bad_folder_with_2(bare, tmp_path, monkeypatch):
    (tmp_path / "adult.data").write_bytes(b"nothing")
    (tmp_path / "adult.test").write_bytes(b"nothing")
    monkeypatch.setenv("PERFORMATIVE_DATA", str(tmp_path))
    done = invoke("get", "adult", "--json")
    assert done.exit_code == 1 and "5b00264637dbfec3" in json.loads(done.stdout)["error"]["message"]
    monkeypatch.setenv("PERFORMATIVE_DATA", str(tmp_path / "none"))
    for words in (["list"], ["get", "adult"], ["path", "adult"]):
        done = invoke(*words, "--json")
        assert done.exit_code == 2 and "PERFORMATIVE_DATA" in json.loads(done.stdout)["error"]["message"]

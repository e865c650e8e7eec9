"""--set KEY=VALUE replaces entries of a file, on every command that reads one."""

import errno
import json
import os

import pytest
from typer.testing import CliRunner

from performative.cli.app import app


def command(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_entries_are_replaced_and_added(file):
    words = ["--set", "run.rounds=3", "--set", "algorithm.recipe=fedprox", "--set", "algorithm.mu = 0.5"]
    ended = command("run", file, *words, "--json")
    found = json.loads(ended.stdout)
    assert ended.exit_code == 0 and found["rounds"] == 3 and "fedprox" in json.dumps(found)
    settled = command("certify", file, "--set", "problem.population.sensitivity=[1.2, 1.8]")
    assert "Not contracting" in " ".join(settled.stdout.split())
    assert json.loads(command("run", file, "--json").stdout)["rounds"] == 5  # the file is as before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("rounds", "write key=value"),
        ("run.rounds.x=7", "rounds is 5, not a table"),
        ("run.rouns=3", "unknown key 'rouns'. Did you mean 'rounds'?"),
        ("run.rounds=many", "rounds"),
    ],
)
def test_wrong_ones_are_named(file, words, told):
    ended = command("run", file, "--set", words)
    assert ended.exit_code == 2 and told in " ".join(ended.output.split()) and "Traceback" not in ended.output


@pytest.mark.parametrize(
    "words", [("certify", "people.csv", "--label", "y"), ("privacy", "spent", "--noise", "1", "--steps", "9", "--delta",
              "1e-5"), ("design", ".", "--effect", "1")]
)  # fmt: skip
def test_without_a_file_it_is_refused(words):
    ended = command(*words, "--set", "run.rounds=3")
    assert ended.exit_code == 2 and "error: --set run.rounds=3: it overrides an entry of a" in ended.stderr


def test_an_output_that_cannot_be_written_is_refused_before_the_run(file, tmp_path, monkeypatch):
    def full(dir):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("performative.cli.output.tempfile.TemporaryFile", full)
    for words in (("run", file, "--out", tmp_path / "a.nc"), ("demo", "--out", tmp_path / "new" / "folder")):
        ended = command(*words)
        assert ended.exit_code == 2 and "cannot be written (No space left on device)" in ended.stderr, ended.output
    assert "--page p.txt: the page is" in command("assess", "people.csv", "--label", "y", "--page", "p.txt").stderr


@pytest.mark.parametrize("name", ["run", "plan", "design", "certify", "scoreboard", "privacy spent"])
def test_every_command_that_reads_a_file_has_it(name):
    assert "--set" in command(*name.split(), "--help").output

"""`performative suite`: what is shown, packed and refused."""

import json

import pytest
from typer.testing import CliRunner

from performative.cli import app
from performative.suite.protocol import Result
from performative.suite.published import unpack
from performative.suite.store import Store

ENVS = ("gaussian-contracting-v1", "pricing-demand-v1")


def invoke(*words):
    return CliRunner().invoke(app, ["suite", *map(str, words)])


@pytest.fixture
def folder(tmp_path):
    facts = {"contraction": 0.5, "gap": 0.2, "deployments": 10}
    for env in ENVS:
        for method, score in (("pofl", 0.9), ("rgd", 0.5), ("stable", 0.6)):
            scores = (score - 0.01, score + 0.01)
            Store(tmp_path).put(Result(env, method, scores, scores, path=((10, score),), facts=facts))
    return tmp_path


def test_show_says_what_wins_and_writes_a_page(folder, tmp_path):
    page = tmp_path / "board.html"
    found = invoke("show", "--out", folder, "--page", page, "--json")
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    assert told["standings"][0]["method"] == "pofl" and "`pofl` closes 0.90" in told["words"]["pricing"]
    assert "<code>pofl</code>" in page.read_text()
    assert invoke("show", "--out", folder, "--page", tmp_path / "board.pdf").exit_code == 2


def test_pack_writes_one_file(folder, tmp_path):
    found = invoke("pack", tmp_path / "all.json", "--out", folder)
    assert found.exit_code == 0, found.output
    assert len(unpack((tmp_path / "all.json").read_text()).results) == 6
    assert invoke("pack", tmp_path / "none.json", "--out", tmp_path / "nowhere").exit_code == 2


def test_unknown_names_are_refused():
    found = invoke("run", "--methods", "rgdd", "--json")
    assert found.exit_code == 2 and "rgd" in found.output

"""The README: what it prints, draws and claims is what comes out when it is done again."""

import contextlib
import functools
import io
import re
import sys
from pathlib import Path

import pytest

import performative as pf
from performative.config import load_experiment

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
sys.path.insert(0, str(ROOT / "docs" / "_ext"))
import peers  # noqa: E402  after the path
import readme_picture  # noqa: E402  after the path


def test_the_code_prints_what_stands_below_it():
    blocks = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == README.count("```python") == 1
    for code, output in blocks:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(code, "README", "exec"), {})
        assert said.getvalue() == output


def test_its_length():
    assert 600 <= len(README.split()) <= 800


def test_its_picture_is_drawn_again_to_the_byte():
    assert readme_picture.FILE.stat().st_size < 50_000
    assert readme_picture.draw() == readme_picture.FILE.read_text(encoding="utf-8")


def test_its_table_holds_generated_claims_only():
    assert peers.page(README) == README
    for _, ours in peers.ROWS.values():
        assert functools.reduce(getattr, ours.split("."), pf) is not None


def test_what_is_said_of_flower_is_what_is_installed():
    flwr = pytest.importorskip("flwr", reason="the extra performative[flower] is not installed")
    found = peers.json.loads(peers.FILE.read_text())["Flower"]
    assert flwr.__version__.startswith(found["version"])
    assert peers.matches(Path(flwr.__file__).parent) == found["found"]


def test_what_it_links_to_is_there():
    links = re.findall(r"\]\(([^)#]+)", README)
    assert len(links) > 10
    assert not [link for link in links if "://" not in link and not (ROOT / link).is_file()]


def test_names_and_commands_exist():
    from typer.main import get_command

    from performative.cli.app import app

    commands: dict = get_command(app).commands
    for words in re.findall(r"`performative ((?:\w+ ?)+)", README):
        first, *rest = words.split()
        assert first in commands, first
        if hasattr(commands[first], "commands"):
            assert rest[0] in commands[first].commands, words
    for name in re.findall(r"`pf\.([\w.]+)", README):
        assert functools.reduce(getattr, name.split("."), pf) is not None


def test_the_file_under_good_to_know_builds(tmp_path):
    page = (ROOT / "docs" / "good-to-know.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```toml\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    pf.cases.credit_table().to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "credit.toml").write_text(block)
    experiment = load_experiment(tmp_path / "credit.toml")
    assert experiment.problem.clients == 10
    assert experiment.algorithm.participation == pf.SchemeTwo(5)

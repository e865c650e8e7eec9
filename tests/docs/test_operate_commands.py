"""The commands that operators copy are commands of ours, with options that they have."""

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from performative.cli.federation import federation

ROOT = Path(__file__).parents[2]
PAGES = ("docs/recipes/operate.md", "docs/recipes/federation.md", "src/performative/live/template/README.md")
GROUP = typer.main.get_group(federation)


def commands(page):
    text = (ROOT / page).read_text().replace("\\\n", " ")
    for block in re.findall(r"^```(?:bash|sh)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words[:2] == ["performative", "federation"]:
                yield words[2:]


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options_are_there(page):
    found = list(commands(page))
    assert len(found) >= 5
    for words in found:
        command = GROUP.commands[words[0]]
        context = command.make_context(words[0], list(words[1:]), resilient_parsing=False)  # raises on a wrong option
        assert context.params


def test_the_page_names_tests_that_are_there():
    text = (ROOT / "docs/recipes/operate.md").read_text()
    named = re.findall(r"`(test_\w+)`", text)
    files = list((ROOT / "tests" / "live").rglob("test_*.py"))
    there = "".join(f"def {path.stem}(\n{path.read_text()}" for path in files)
    assert len(named) > 10 and all(f"def {name}(" in there for name in named)

"""Every public name stands in the API reference with an example, and all examples run as they are printed."""

import ast
import functools
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from api_pages import FOLDER, PAGES, blocks, directives

import performative as pf
from performative.config import registry

sys.path.insert(0, str(FOLDER.parent / "_ext"))
import page_tables
from page_reference import complete, pages, read


def _module(name):
    return importlib.import_module(f"performative.{name}" if name else "performative")


@functools.cache
def _words(page):
    """Names, attributes and imports in the blocks of a page."""
    words = set()
    for block in blocks(page):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Name):
                words.add(node.id)
            elif isinstance(node, ast.Attribute):
                words.add(node.attr)
            elif isinstance(node, ast.alias):
                words |= set(node.name.split("."))
    return words


def _pages_of(module):
    return pages() if PAGES[module] is None else [FOLDER / f"{PAGES[module]}.md"]


def test_every_public_module_has_a_page():
    """Every module that says what is public in it, but for the commands."""
    root = Path(pf.__file__).parent
    files = {path.stem if path.stem != "__init__" else path.parent.name: path for path in root.glob("*.py")}
    files |= {path.parent.name: path for path in root.glob("*/__init__.py")}
    public = {name for name, path in files.items() if "\n__all__ = [" in path.read_text(encoding="utf-8")}
    assert {name for name in public if name[0] != "_"} - {"performative", "cli"} <= set(PAGES)
    for name in PAGES:
        assert _module(name).__all__, f"performative.{name} does not say what is public in it"


@pytest.mark.parametrize("module", PAGES)
def test_every_name_is_in_an_executed_block(module):
    words = set().union(*(_words(page) for page in _pages_of(module)))
    missing = sorted(set(_module(module).__all__) - words)
    page = f"docs/api/{PAGES[module] or '*'}.md"
    assert not missing, f"{missing}: give an example at the end of the docstring (after `Example:`), or on {page}"


@pytest.mark.parametrize("module", PAGES)
def test_every_name_is_described(module):
    """By a directive that shows its docstring, unless the name is a module; and the docstring is there."""
    shown = {path.split(".")[-1] for page in pages() for path in directives(page)}
    for name in _module(module).__all__:
        thing = getattr(_module(module), name)
        if thing.__class__.__name__ == "module":
            continue
        assert name in shown, f"docs/api/{PAGES[module] or '*'}.md does not show performative.{module}.{name}"
        assert not callable(thing) or (thing.__doc__ or "").strip(), f"performative.{module}.{name} has no docstring"


def test_directives_name_what_exists_once():
    seen = [path for page in pages() for path in directives(page)]
    assert len(seen) == len(set(seen)), {path for path in seen if seen.count(path) > 1}
    for path in seen:
        module, name = path.rsplit(".", 1) if "." in path else ("", path)
        assert hasattr(_module(module), name), f"performative.{path} does not exist"


def test_the_index_lists_every_name():
    """Its tables are made from the pages, each of which it asks for once, below a heading that links to it."""
    index = read(FOLDER / "index.md")
    asked = re.findall(r"^## \[.+\]\((\S+)\.md\)\n\n<!-- generate: names (\S+) -->$", index, flags=re.MULTILINE)
    assert sorted(asked) == [(page.stem, page.stem) for page in pages()]
    tables = "\n".join(page_tables.names(page) for _, page in asked)
    row = r"^\| \{py:obj\}`([\w.]+) <performative\.([\w.]+)>` \| \S.* \|$"
    listed = re.findall(row, tables, flags=re.MULTILINE)
    assert {path for _, path in listed} == {path for page in pages() for path in directives(page)}
    for module in PAGES:
        for name in _module(module).__all__:
            if getattr(_module(module), name).__class__.__name__ != "module":
                assert any(path.split(".")[-1] == name for _, path in listed), f"index.md lacks {module}.{name}"


class Newcomer(pf.participation.AbstractParticipation):
    """Nobody
    takes part, with |a| < 1 * x_y; see `a|b`.

    Example:

        import performative as pf

        for n in (1, 2):
            print(n, pf.participation.Newcomer)
    """

    def size(self, clients):
        return 0

    def select(self, key, facts, memory):
        raise NotImplementedError


def newer():
    """A function without an example."""


@pytest.fixture
def newcomers(monkeypatch):
    """Two public names that no page knows."""
    module = pf.participation
    for thing in (Newcomer, newer):
        monkeypatch.setattr(module, thing.__name__, thing, raising=False)
    monkeypatch.setattr(module, "__all__", [*module.__all__, "Newcomer", "newer"])
    caches = (_words, registry._public)
    for known in caches:
        known.cache_clear()
    yield
    for known in caches:
        known.cache_clear()


def test_a_new_name_is_its_file_and_one_export(newcomers):
    """It gets an entry on the page of its module, with the example of its docstring, and a row in the index."""
    page = FOLDER / "participation.md"
    assert directives(page)[-2:] == ["participation.Newcomer", "participation.newer"]
    assert (
        blocks(page)[-1] == "import performative as pf\n\nfor n in (1, 2):\n    print(n, pf.participation.Newcomer)\n"
    )
    shown = complete(read(page))
    assert shown.endswith("\n\n```{eval-rst}\n.. autofunction:: performative.participation.newer\n```\n")
    rows = page_tables.names("participation").split("\n")
    link = "{py:obj}`Newcomer <performative.participation.Newcomer>`"
    assert f"| {link} | Nobody takes part, with &#124;a&#124; &lt; 1 &#42; x&#95;y; see `a|b`. |" in rows
    assert link in page_tables.parts() and "newer" not in page_tables.parts()


def test_a_new_name_without_an_example_is_told(newcomers):
    with pytest.raises(AssertionError, match=r"\['newer'\]: give an example at the end of the docstring"):
        test_every_name_is_in_an_executed_block("participation")


def test_a_name_that_stands_on_a_page_gets_no_second_entry():
    for page in pages():
        shown = directives(page)
        assert len(shown) == len(set(shown)), page.name


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_blocks_compile_and_print(page):
    code = blocks(page)
    assert code, "a page without an example"
    for number, block in enumerate(code):
        compile(block, f"{page.name}, block {number}", "exec")
    assert sum("print(" in block for block in code) >= len(code) * 0.8


@pytest.mark.slow
@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_pages_run(page, tmp_path):
    """As a reader would run them: in an empty folder, in a process without the settings of the tests."""
    environment = {**os.environ, "MPLBACKEND": "Agg", "PERFORMATIVE_CACHE": "off"}
    script = FOLDER.parents[1] / "tests" / "api" / "api_pages.py"
    flags = ["-W", "error::RuntimeWarning", "-W", "error::UserWarning"]
    done = subprocess.run(
        [sys.executable, *flags, script, page],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert not done.returncode, f"{page.name}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    seconds = float(re.search(r"processor seconds: ([\d.]+)", done.stdout)[1])
    print(page.stem, seconds)
    assert seconds < 60, f"{page.name} takes {seconds} s of processor time; the site runs them all"

"""Every public name stands in the API reference with an example, and all examples run as they are printed."""

import ast
import functools
import importlib
import os
import re
import subprocess
import sys

import pytest
from api_pages import FOLDER, PAGES, blocks, directives, pages

import performative as pf


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
    """What the package's own face names, and every module that says what is public in it."""
    faces = {name for name in pf.__all__ if getattr(pf, name).__class__.__name__ == "module"}
    late = {"audit", "data", "experiments", "live", "plotting", "report", "testing"}
    assert not (faces | late) - set(PAGES)
    for name in PAGES:
        assert _module(name).__all__, f"performative.{name} does not say what is public in it"


@pytest.mark.parametrize("module", PAGES)
def test_every_name_is_in_an_executed_block(module):
    words = set().union(*(_words(page) for page in _pages_of(module)))
    missing = sorted(set(_module(module).__all__) - words)
    assert not missing, f"docs/api/{PAGES[module] or '*'}.md has no example of {missing}"


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
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[`([\w.]+)`\]\[performative\.([\w.]+)\] \| \S.* \|$", index, flags=re.MULTILINE)
    assert {path for _, path in listed} == {path for page in pages() for path in directives(page)}
    for module in PAGES:
        for name in _module(module).__all__:
            if getattr(_module(module), name).__class__.__name__ != "module":
                assert any(path.split(".")[-1] == name for _, path in listed), f"index.md lacks {module}.{name}"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_blocks_compile_and_print(page):
    code = blocks(page)
    assert code, "a page without an example"
    for number, block in enumerate(code):
        compile(block, f"{page.name}, block {number}", "exec")
    assert sum("print(" in block for block in code) >= len(code) * 0.8
    # The site runs blocks that begin in the first column only.
    assert not re.search(r"^ +```python", page.read_text(encoding="utf-8"), flags=re.MULTILINE)


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

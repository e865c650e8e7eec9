"""Docstrings that are written for a terminal become lists and blocks on the site, and nothing else changes."""

import sys
from pathlib import Path

import pytest

import performative as pf

pytest.importorskip("griffe")
sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "_hooks"))
import api_docstrings

WRITTEN = """One line.

    v = mean of g

theta:  the model
a, b:   two numbers
        that go together
Unbiased: this is prose, and no argument.
Differs from the paper:
- it has no b;
- and so on, over
  two lines."""

SHOWN = """One line.

    v = mean of g

- `theta`: the model
- `a`, `b`: two numbers
  that go together

Unbiased: this is prose, and no argument.
Differs from the paper:

- it has no b;
- and so on, over
  two lines."""


def test_arguments_and_lists_stand_on_lines_of_their_own():
    assert api_docstrings.as_markdown(WRITTEN, {"theta", "a", "b"}) == SHOWN


def test_prose_stays_as_it_is():
    assert api_docstrings.as_markdown(pf.SchemeOne.__doc__, {"k"}) == pf.SchemeOne.__doc__


def test_columns_become_a_list():
    rules = (
        "Rules:\n\nfirst rule    what it asks\nsecond        more\nthird_one     still more\n              on two lines"
    )
    shown = api_docstrings.as_markdown(rules, set())
    assert "- `first rule`: what it asks\n- `second`: more\n- `third_one`: still more\n  on two lines" in shown


def test_parts_get_their_arguments():
    import griffe

    package = griffe.Module("performative")
    package.set_member("domains", griffe.Module("domains"))
    box = griffe.Class("Box", docstring=griffe.Docstring(pf.Box.__doc__))
    package.set_member("domains.Box", box)
    api_docstrings.ReadableDocstrings().on_package(pkg=package)
    assert [parameter.name for parameter in box.members["__init__"].parameters] == ["self", "lo", "hi"]


def test_an_example_is_left_to_the_page():
    """Which shows it below the docstring, as a block that runs; what is no example at the end stays."""
    import griffe

    package = griffe.Module("performative")
    package.set_member("domains", griffe.Module("domains"))
    box = griffe.Class("Box", docstring=griffe.Docstring("A box.\n\nExample:\n\n    print(1)\n\n    print(2)\n"))
    package.set_member("domains.Box", box)
    api_docstrings.ReadableDocstrings().on_package(pkg=package)
    assert box.docstring.value == "A box."
    for text in (WRITTEN, "A box.\n\nExample:\n\n    print(1)\n\nand so on"):
        assert api_docstrings.split_example(text) == (text, "")

"""Docstrings that are written for a terminal become text, equations and sections on the site."""

import ast
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "_ext"))
from page_docstrings import as_rst, short_signature
from page_reference import split_example

SOURCE = Path(__file__).parents[2] / "src" / "performative"
WRITTEN = """One line with `code_`s, |x| and a * b.

    v = |mean| of g_

theta:  the model
a, b:   two numbers
        that go together

Differs from the paper:
- it has no b;
- and so on.

Args:
    theta: the model `x`

Returns:
    All of |it|."""

SHOWN = r"""One line with \ ``code_``\ s, \|x\| and a \* b.

::

        v = |mean| of g_

::

    theta:  the model
    a, b:   two numbers
            that go together

Differs from the paper:

- it has no b;
- and so on.

Args:
    theta: the model \ ``x``\ 

Returns:
    All of \|it\|."""


def test_equations_stay_and_sections_are_left_to_napoleon():
    assert as_rst(WRITTEN) == SHOWN


def test_what_is_written_is_sound_markup():
    docutils = pytest.importorskip("docutils.core")
    text = as_rst(WRITTEN).replace("Args:\n    ", "").replace("Returns:\n    ", "")
    page = docutils.publish_string(text, writer="pseudoxml", settings_overrides={"halt_level": 2}).decode()
    assert page.count("<literal_block") == 2 and page.count("<literal>") == 2 and page.count("<list_item>") == 2
    assert "|x| and a * b" in page


def test_an_example_is_left_to_the_page():
    """Which shows it below the docstring, as a block that runs."""
    code = "print(1)\n\nprint(2)"
    for blank in ("", "\n"):
        text = f"A box.\n\nExample:\n{blank}    print(1)\n\n    print(2)\n"
        assert split_example(text) == ("A box.", code)
        assert split_example(f"{text}\nReferences:\n    One.") == ("A box.\n\nReferences:\n    One.", code)
    assert split_example(WRITTEN) == (WRITTEN, "")


def test_a_default_without_a_name_is_three_dots():
    assert short_signature("(a, b=<function f at 0x7f00>, c=<factory>, d=1)") == "(a, b=..., c=..., d=1)"


def test_sections_do_not_break_a_sentence():
    """After a list of arguments a new sentence begins, unless it is a symbol of an equation that stood above."""
    broken = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = ast.get_docstring(node) if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else None
            found = re.search(r"^(?:Args|Attributes):\n(?:    .*\n)+\n([a-z]\w*) ", text or "", flags=re.MULTILINE)
            broken += [] if found is None else [f"{path.name}: {node.name}: {found[1]}"]
    assert not broken

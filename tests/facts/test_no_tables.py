"""Analyses read facts: none of them asks for one of our own classes."""

import ast
import inspect
from pathlib import Path

import pytest

import performative as pf
from performative.facts import AbstractPart, is_ours

ROOT = Path(pf.__file__).parent
ANALYSES = ("privacy", "certify", "papers/citations", "plan", "inference", "live", "_engine")
# (file, what is asked): nothing so far. A test of an argument in order to refuse it may stand here, with a reason.
ALLOWED: set[tuple[str, str]] = set()
LOOKS = (ast.Is, ast.IsNot, ast.In, ast.NotIn, ast.Eq)
HOLDS = ("inner", "outlier", "groups", "clip", "noise_multiplier")


def kinds(above=AbstractPart):
    for kind in above.__subclasses__():
        if is_ours(kind) and not inspect.isabstract(kind) and not kind.__name__.startswith("Abstract"):
            yield kind.__name__
        yield from kinds(kind)


PARTS = {*kinds(), "squared", "negative_revenue", "linear_scores"}


def asked(path):
    """Places in a file that look up what kind of part they have."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = {inside.id for inside in ast.walk(node) if isinstance(inside, ast.Name)} & PARTS
        names |= {inside.attr for inside in ast.walk(node) if isinstance(inside, ast.Attribute)} & PARTS
        text = ast.unparse(node) if isinstance(node, (ast.Call, ast.Compare, ast.FunctionDef, ast.Dict)) else ""
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in ("isinstance", "issubclass") and names:
                yield node.lineno, text
            if called == "hasattr" and ast.literal_eval(node.args[1]) in HOLDS:
                yield node.lineno, text
            if called.endswith((".register", "singledispatch")):
                yield node.lineno, text
        elif isinstance(node, ast.Compare) and names and isinstance(node.ops[0], LOOKS):
            yield node.lineno, text
        elif isinstance(node, ast.FunctionDef) and "singledispatch" in map(ast.unparse, node.decorator_list):
            yield node.lineno, node.name
        elif isinstance(node, ast.Dict) and len({ast.unparse(key) for key in node.keys if key} & PARTS) > 1:
            yield node.lineno, text


def test_the_search_finds_what_it_is_for(tmp_path):
    for line in (
        "isinstance(x, Fixed)", "type(x) is Mean", "type(x) in (pf.Full, SchemeTwo)", 'hasattr(part, "inner")',
        "protection.register(Clipped)", "loss is squared", "{Fixed: 1, Poisson: 2}",
    ):  # fmt: skip
        (tmp_path / "wrong.py").write_text(line)
        assert list(asked(tmp_path / "wrong.py")), line
    (tmp_path / "fine.py").write_text("isinstance(x, AbstractEstimator)\nUniform(2)\nlaw is None")
    assert not list(asked(tmp_path / "fine.py"))


@pytest.mark.parametrize("folder", ANALYSES)
def test_no_analysis_asks_for_our_own_classes(folder):
    assert {"Gaussian", "Clipped", "Fixed", "Mean", "Ridge"} <= PARTS
    found = {
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in (ROOT / folder).rglob("*.py")
        for line, text in asked(path)
        if (str(path.relative_to(ROOT)), text) not in ALLOWED
    }
    assert not found, "\n".join(sorted(found))


def test_no_list_of_classes_stands_in_an_analysis():
    """Two or more of our classes in a tuple or list would be one."""
    found = []
    for folder in ANALYSES:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                listed = node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else ()
                if sum(isinstance(one, ast.Name) and one.id in PARTS for one in listed) > 1:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")
    assert not found, "\n".join(found)

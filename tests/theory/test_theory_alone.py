"""`theory` can be read, checked and reused without the rest, but for how arguments are read and refused."""

import ast
from pathlib import Path

import performative.theory

READING = {
    "performative._deprecated",
    "performative._base.arguments",
    "performative._base.messages",
    "performative.types",
}


def test_it_imports_nothing_of_ours():
    for path in Path(performative.theory.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            ours = [n for n in names if n.split(".")[0] == "performative"]
            assert all(n.startswith("performative.theory") or n in READING for n in ours), f"{path.name} imports {ours}"

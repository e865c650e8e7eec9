"""`theory` can be read, checked and reused without the rest of the package."""

import ast
from pathlib import Path

import performative.theory


def test_it_imports_nothing_of_ours():
    for path in Path(performative.theory.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            ours = [n for n in names if n.split(".")[0] == "performative"]
            # Codes of refusals come from a module of plain text, which imports nothing.
            others = [n for n in ours if not n.startswith(("performative.theory", "performative.messages"))]
            assert not others, f"{path.name} imports {others}"

"""What a result depends on: the constants, the experiment's own modules and the library, as one digest."""

import ast
import functools
import hashlib
import inspect
import sys
from types import ModuleType

from performative.papers.catalog import FOLDER, PAPERS

# What tells, draws, reads files or talks to others: no number of an experiment comes from there.
_NO_NUMBERS = frozenset(
    ("_deprecated.py", "audit", "cli", "config", "findings.py", "live", "papers", "plotting.py", "report", "scoreboard")
)
_OF_PAPERS = ("performative.papers.runs", *(f"performative.papers.{paper}." for paper in PAPERS))


@functools.cache
def library() -> str:
    """A digest of the library's code; comments, docstrings and layout do not count."""
    folder = FOLDER.parent
    files = sorted(path for path in folder.rglob("*.py") if path.relative_to(folder).parts[0] not in _NO_NUMBERS)
    told = hashlib.sha256()
    for file in files:
        told.update(file.relative_to(folder).as_posix().encode())
        told.update(meaning(file.read_text(encoding="utf-8")).encode())
    return told.hexdigest()[:16]


def meaning(source: str) -> str:
    """The code of a module without comments, docstrings and layout."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node, clean=False):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)


def own_code(module: str) -> list[str]:
    """The code of an experiment's module and of those of papers that it takes something from."""
    found: dict[str, ModuleType] = {}
    waiting = [module]
    while waiting:
        here = waiting.pop()
        if here in found or here not in sys.modules:
            continue
        found[here] = sys.modules[here]
        for thing in vars(found[here]).values():
            owner = thing.__name__ if isinstance(thing, ModuleType) else getattr(thing, "__module__", None)
            if isinstance(owner, str) and owner.startswith(_OF_PAPERS):
                waiting.append(owner)
    return [meaning(inspect.getsource(found[key])) for key in sorted(found)]

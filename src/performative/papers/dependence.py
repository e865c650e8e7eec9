"""What a result depends on: the constants, the experiment's own modules and the library, as one digest."""

import dis
import functools
import hashlib
import inspect
import sys
from types import CodeType, ModuleType

from performative.papers.catalog import FOLDER, PAPERS

# Reporting, plotting, configuration and communication code: no experiment's numbers depend on it.
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
    """A digest of a module's compiled code, which ignores comments, docstrings and layout."""
    code = compile(source, "", "exec", dont_inherit=True, optimize=2)
    return hashlib.sha256(repr(_bare(code)).encode()).hexdigest()


def _bare(constant: object) -> object:
    """Instructions and names of a code object, independent of its position in the file and of the process."""
    if isinstance(constant, CodeType):
        inside = tuple(map(_bare, constant.co_consts))
        words = zip(constant.co_code[::2], constant.co_code[1::2], strict=True)
        done = [word for word in words if word[0] != dis.opmap["NOP"]]  # a docstring leaves one behind
        return done, constant.co_names, constant.co_varnames, constant.co_freevars, inside
    return sorted(map(repr, constant)) if isinstance(constant, frozenset) else repr(constant)


def own_code(module: str) -> list[str]:
    """Digests of an experiment's module and of the modules of `papers` that it imports from."""
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

"""Evidence that pages point to: `tests/file.py::name` and `claim:paper/name#id`. All of it must exist."""

import ast
import functools
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ROOT / "src" / "performative" / "experiments"
_TEST = re.compile(r"tests/[\w/]+\.py(?:::\w+)*")
_CLAIM = re.compile(r"`claim:([\w-]+/[\w-]+)#([\w-]+)`")


def missing_evidence(markdown: str) -> list[str]:
    """What a page names and there is not."""
    lost = [where for where in _TEST.findall(markdown) if not _is_test(where)]
    if EXPERIMENTS.is_dir():
        lost += [f"claim:{name}#{claim}" for name, claim in _CLAIM.findall(markdown) if claim not in _claims(name)]
    return lost


def link_claims(markdown: str, ledger: str) -> str:
    """Claims become links into the ledger; tests stay as they are."""
    return _CLAIM.sub(lambda found: f"[`{found[1]}#{found[2]}`]({ledger}#{anchor(found[1], found[2])})", markdown)


def anchor(name: str, claim: str) -> str:
    """Where a claim stands on the page of the ledger."""
    return re.sub(r"[^a-z0-9]+", "-", f"{name}-{claim}".lower())


def _is_test(where: str) -> bool:
    file, *names = where.split("::")
    path = ROOT / file
    return path.exists() and (not names or names[-1] in _names(path))


@functools.cache
def _names(path: Path) -> frozenset[str]:
    """Every function and class of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.ClassDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


@functools.cache
def _claims(name: str) -> frozenset[str]:
    """The claims of an experiment."""
    path = EXPERIMENTS / f"{name}.toml"
    if not path.exists():
        return frozenset()
    return frozenset(claim["id"] for claim in tomllib.loads(path.read_text(encoding="utf-8")).get("claims", ()))

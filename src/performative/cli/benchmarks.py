"""Run the benchmarks of the repository."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from performative._base.checks import nearest

NAMES = ("core", "optimal", "private", "certificates", "audits", "networks", "federation")
# These take minutes, start processes or need a GPU, so they run only when they are named.
LONG = ("audit", "federation", "networks", "networks_gpu")


def find_benchmarks() -> dict[str, Callable[[], dict[str, Any]]]:
    """All benchmarks by name. They live in the repository, not in the installed package."""
    folder = Path(__file__).parents[3]
    if not (folder / "benchmarks" / "core.py").exists():
        raise FileNotFoundError("the benchmarks are not part of the installed package; install from a clone (pip -e).")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    modules = [importlib.import_module(f"benchmarks.{name}") for name in NAMES]
    return {name: run for module in modules for name, run in module.BENCHMARKS.items()}


def usual(known: dict[str, Any]) -> list[str]:
    """What runs where nothing is named."""
    return [name for name in known if name not in LONG]


def run_benchmarks(names: list[str] | None = None) -> list[dict[str, Any]]:
    """One row a benchmark: seconds of ours and of the reference, and their ratio within this run."""
    known = find_benchmarks()
    for name in names or []:
        if name not in known:
            raise ValueError(f"there is no benchmark {name!r}.{nearest(name, known)}")
    return [known[name]() for name in (names or usual(known))]

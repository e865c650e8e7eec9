"""The benchmarks of the repository."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAMES = (
    "core", "optimal", "private", "certificates", "audits", "networks", "federation", "games", "worlds", "moments",
    "points", "peers", "watching", "secure", "federation_load",
)  # fmt: skip
# These take minutes, start processes or need a GPU, so they run only when named.
LONG = (
    "audit",
    "audit_rows",
    "federation",
    "federation_load",
    "federation_members",
    "federation_model",
    "federation_rounds",
    "networks",
    "networks_gpu",
    "secure",
    "watch_alarms",
    "watch_load",
)


def find_benchmarks() -> dict[str, Callable[[], dict[str, Any]]]:
    """All benchmarks by name. They live in the repository, not in the installed package.

    Each returns the seconds of this library and of the reference, and their ratio within this run.
    """
    folder = Path(__file__).parents[3]
    if not (folder / "benchmarks" / "core.py").exists():
        raise FileNotFoundError("the benchmarks are not part of the installed package; install from a clone (pip -e).")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    modules = [importlib.import_module(f"benchmarks.{name}") for name in NAMES]
    return {name: run for module in modules for name, run in module.BENCHMARKS.items()}

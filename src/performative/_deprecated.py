"""Old public names: each still works, says its new name once a place, and is listed here and nowhere else."""

import importlib
import warnings
from collections.abc import Callable

# Module -> old name -> the new name, as a full dotted path.
OLD_NAMES: dict[str, dict[str, str]] = {}


def old_names(module: str) -> Callable[[str], object]:
    """A module's `__getattr__`, which answers to the names that it once had."""

    def answer(name: str) -> object:
        new = OLD_NAMES.get(module, {}).get(name)
        if new is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} is now {new}.", DeprecationWarning, stacklevel=3)
        return find(new)

    return answer


def find(path: str) -> object:
    """The object of a dotted path: a module, or what lies in one."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        owner, _, name = path.rpartition(".")
        return getattr(find(owner), name)

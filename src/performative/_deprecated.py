"""Old public names: each still works, says its new name, and is listed here and nowhere else."""

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
import warnings
from collections.abc import Sequence

# Modules that moved. `import performative.privacy.attack` still works.
OLD_MODULES = {
    "performative.privacy.attack": "performative.privacy.attack",
    "performative.papers.citations": "performative.papers.citations",
    "performative._engine": "performative.executors",
    "performative.experiments": "performative.papers",
    "performative.optimizers": "performative.optimizers",
}
# Module -> old name -> the new name, as a full dotted path.
OLD_NAMES: dict[str, dict[str, str]] = {}


def old_name(module: str, name: str) -> object:
    """What a module answers to a name that it does not have: the thing under its new name, or an AttributeError."""
    old = f"{module}.{name}"
    new = OLD_MODULES.get(old) or OLD_NAMES.get(module, {}).get(name)
    if new is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    warnings.warn(f"{old} is now {new}.", DeprecationWarning, stacklevel=3)
    return find(new)


def find(path: str) -> object:
    """The object of a dotted path: a module, or what lies in one."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        owner, _, name = path.rpartition(".")
        return getattr(find(owner), name)


class OldModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports of modules that moved give the module at its new place."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(fullname, self) if fullname in OLD_MODULES else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        new = OLD_MODULES[spec.name]
        warnings.warn(f"{spec.name} is now {new}.", DeprecationWarning, stacklevel=2)
        return types.ModuleType(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__dict__.update(vars(importlib.import_module(OLD_MODULES[module.__name__])))


if not any(isinstance(finder, OldModules) for finder in sys.meta_path):
    sys.meta_path.append(OldModules())

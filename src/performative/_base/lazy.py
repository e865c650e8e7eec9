"""Package names that are imported on first use."""

import sys
from collections.abc import Callable, Collection
from importlib import import_module
from typing import Any

from performative._deprecated import old_name


def later(package: str, places: dict[str, str], modules: Collection[str] = ()) -> Callable[[str], Any]:
    """A module's `__getattr__`: `places` maps each name to its module; `modules` are imported by name."""

    def get(name: str) -> Any:
        if name in places:
            found = getattr(import_module(f"{package}.{places[name]}"), name)
        elif name in modules:
            found = import_module(f"{package}.{name}")
        else:
            return old_name(package, name)
        setattr(sys.modules[package], name, found)
        return found

    return get

"""Names of a package that are imported when they are first used."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from performative._deprecated import old_name


def later(package: str, places: dict[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__`: `places` says in which of its modules each name lives."""

    def get(name: str) -> Any:
        if name not in places:
            return old_name(package, name)
        return getattr(import_module(f"{package}.{places[name]}"), name)

    return get

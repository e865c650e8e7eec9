"""The registry of environments: one function per environment, one file per family, loaded on first use."""

import dataclasses
import functools
import inspect
import pkgutil
import re
from collections.abc import Callable
from importlib import import_module

from performative._base.arguments import checked
from performative._base.checks import nearest
from performative.suite import worlds
from performative.suite.environment import Environment
from performative.suite.setting import Setting

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*-v(?P<version>[1-9][0-9]*)")


@dataclasses.dataclass(frozen=True)
class _Entry:
    family: str
    card: str
    version: int
    build: Callable[[], Setting]


_ENTRIES: dict[str, _Entry] = {}


def register(
    id: str, *, family: str, card: str | None = None
) -> Callable[[Callable[[], Setting]], Callable[[], Setting]]:
    """Decorate a function without arguments that returns a `pf.suite.Setting`, to register it as an environment.

    Args:
        id: words and a version, such as "credit-strategic-v1". The numbers of a version never change: any change
            requires a new version
        family: the family it is listed under
        card: a paragraph of description; None uses the function's docstring
    """
    found = _NAME.fullmatch(id)
    if found is None:
        raise ValueError(f'register: id must be words and a version, such as "credit-strategic-v1"; got {id!r}.')

    def add(build: Callable[[], Setting]) -> Callable[[], Setting]:
        told = " ".join(inspect.cleandoc(card or build.__doc__ or "").split())
        if not told or not family:
            raise ValueError(f"register: {id} needs a family and a card; add a docstring to the function.")
        if id in _ENTRIES:
            raise ValueError(f"register: the environment {id} already exists; increase the version.")
        _ENTRIES[id] = _Entry(family, told, int(found["version"]), build)
        return build

    return add


@functools.cache
def _load() -> None:
    """Import every module of `suite.worlds`: each registers its environments."""
    for module in pkgutil.iter_modules(worlds.__path__):
        import_module(f"{worlds.__name__}.{module.name}")


def _entries() -> dict[str, _Entry]:
    _load()
    return _ENTRIES


def families() -> tuple[str, ...]:
    """The families of environments, in alphabetical order."""
    return tuple(sorted({entry.family for entry in _entries().values()}))


@checked
def ids(family: str | None = None) -> tuple[str, ...]:
    """The ids of all environments, or of those in a family."""
    if family is not None and family not in families():
        raise ValueError(f"ids: there is no family {family!r}.{nearest(family, families())}")
    return tuple(sorted(id for id, entry in _entries().items() if family in (None, entry.family)))


def card(id: str) -> str:
    """The card of an environment, without building it."""
    return _entry("card", id).card


def family_of(id: str) -> str:
    """The family of an environment, without building it; "unknown" if the id is not registered."""
    return _entries()[id].family if id in _entries() else "unknown"


def _entry(owner: str, id: str) -> _Entry:
    entries = _entries()
    if id not in entries:
        raise ValueError(f"{owner}: there is no environment {id!r}.{nearest(id, entries)}")
    return entries[id]


@checked
def make(id: str) -> Environment:
    """Return the environment with this id, reset with seed 0.

    If its data are not on this machine, the error says how to get them; see `pf.data`.
    """
    entry = _entry("make", id)
    return Environment(id, entry.family, entry.version, entry.card, entry.build())

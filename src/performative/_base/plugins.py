"""Plugins of installed packages: parts, recipes, metrics, callbacks, data sets and experiments, via entry points.

A package declares them in its pyproject.toml, one group per kind, one line per object:

    [project.entry-points."performative.parts"]
    Tired = "tiny_people.populations:Tired"

Nothing is imported before it is requested. Built-in names cannot be overridden.
"""

import functools
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from performative._base.messages import warn

GROUPS = ("parts", "recipes", "metrics", "callbacks", "data", "experiments")


@functools.cache
def offers(group: str) -> dict[str, EntryPoint]:
    """What installed packages provide in a group, by name. If two packages provide the same name, neither is used."""
    found: dict[str, list[EntryPoint]] = {}
    for entry in entry_points(group=f"performative.{group}"):
        found.setdefault(entry.name, []).append(entry)
    for name, entries in found.items():
        if len({entry.value for entry in entries}) > 1:
            owners = " and ".join(sorted(package_of(entry) for entry in entries))
            warn("plugin-unusable", f"{name!r} of performative.{group} is provided by {owners}, so neither is used.")
    return {name: entries[0] for name, entries in sorted(found.items()) if len({e.value for e in entries}) == 1}


@functools.cache
def load(group: str) -> dict[str, Any]:
    """The same, imported. What cannot be imported is skipped, with a warning that names the package."""
    loaded: dict[str, Any] = {}
    for name, entry in offers(group).items():
        try:
            loaded[name] = entry.load()
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            warn("plugin-unusable", f"{name!r} of the package {package_of(entry)} cannot be imported ({what}).")
    return loaded


def add_to(own: dict[str, Any], group: str) -> dict[str, Any]:
    """Add the plugins to the built-in names; on a clash the built-in one is kept, with a warning."""
    for name in sorted(own.keys() & offers(group).keys()):
        owner = package_of(offers(group)[name])
        warn("plugin-unusable", f"{name!r} of the package {owner} is ignored: this name already exists.")
    return {**load(group), **own} if offers(group) else own


def package_of(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value.split(":")[0]


def summary() -> str:
    """One line listing all plugins, empty if there are none."""
    told = [f"{group}: {', '.join(offers(group))}" for group in GROUPS if offers(group)]
    return f"From installed packages: {'; '.join(told)}." if told else ""


def forget() -> None:
    """Clear the caches: packages may have been installed or removed."""
    offers.cache_clear()
    load.cache_clear()

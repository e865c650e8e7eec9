"""What installed packages add: parts, recipes, metrics, callbacks, data sets and experiments, by entry points.

A package offers them in its pyproject.toml, a group for each kind, a line for each thing:

    [project.entry-points."performative.parts"]
    Tired = "tiny_people.populations:Tired"

Nothing is imported before it is asked for. A name of ours cannot be taken.
"""

import functools
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from performative._base.messages import warn

GROUPS = ("parts", "recipes", "metrics", "callbacks", "data", "experiments")


@functools.cache
def offers(group: str) -> dict[str, EntryPoint]:
    """What installed packages offer in a group, by name. Of a name that two of them offer neither is taken."""
    found: dict[str, list[EntryPoint]] = {}
    for entry in entry_points(group=f"performative.{group}"):
        found.setdefault(entry.name, []).append(entry)
    for name, entries in found.items():
        if len({entry.value for entry in entries}) > 1:
            owners = " and ".join(sorted(package_of(entry) for entry in entries))
            warn("plugin-unusable", f"{name!r} of performative.{group} is offered by {owners}, so neither is taken.")
    return {name: entries[0] for name, entries in sorted(found.items()) if len({e.value for e in entries}) == 1}


@functools.cache
def load(group: str) -> dict[str, Any]:
    """The same, imported. What cannot be imported is left out, with a warning that says whose it is."""
    loaded: dict[str, Any] = {}
    for name, entry in offers(group).items():
        try:
            loaded[name] = entry.load()
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            warn("plugin-unusable", f"{name!r} of the package {package_of(entry)} cannot be imported ({what}).")
    return loaded


def add_to(own: dict[str, Any], group: str) -> dict[str, Any]:
    """Ours and what is offered; a name that we have ourselves stays ours, with a warning."""
    for name in sorted(own.keys() & offers(group).keys()):
        owner = package_of(offers(group)[name])
        warn("plugin-unusable", f"{name!r} of the package {owner} is left out: there is one of this name already.")
    return {**load(group), **own} if offers(group) else own


def package_of(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value.split(":")[0]


def summary() -> str:
    """One line on all that is offered, empty where nothing is."""
    told = [f"{group}: {', '.join(offers(group))}" for group in GROUPS if offers(group)]
    return f"From installed packages: {'; '.join(told)}." if told else ""


def forget() -> None:
    """Look again: packages may have come or gone."""
    offers.cache_clear()
    load.cache_clear()

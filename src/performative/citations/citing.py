"""From a record of parts to the works behind them."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import performative
from performative.algorithm import Algorithm
from performative.citations.bibliography import WORKS
from performative.citations.table import CHOICES, NAMED, PARTS, PERDOMO
from performative.deploy import Deployment, Every
from performative.errors import nearest
from performative.history import History
from performative.sweep import Sweep

# (name, keys); the keys are None for a part of somebody else's.
Found = tuple[str, tuple[str, ...] | None]


def cite(*things: Any) -> str:
    """BibTeX of the works behind what was used, and of this package; each work once.

    things: algorithms, problems, parts (a wrapper counts with what it holds), pf.Privacy, histories, sweeps, recipes
            and other functions, or names: pf.cite("p_fedavg"), pf.cite(problem, algorithm), pf.cite(history). A name
            or a function stands for itself; the algorithm that a recipe makes adds the works of its parts.
    A history knows its algorithm, not its problem. A part of your own adds nothing by itself; a comment at the end
    names such parts, so that none is forgotten. What a work is cited for stands in the docstring of the part.
    """
    keys: set[str] = set()
    unknown: set[str] = set()
    for thing in things:
        for name, found in _works_of(thing):
            keys.update(found or ())
            if found is None:
                unknown.add(name)
    entries = [_software(), *(_entry(key, *WORKS[key]) for key in WORKS if key in keys)]
    if unknown:
        entries.append(f"% Not from this package, so please look for their sources: {', '.join(sorted(unknown))}")
    return "\n\n".join(entries) + "\n"


def _works_of(thing: Any) -> Iterator[Found]:
    if isinstance(thing, str):
        yield thing, _by_name(thing)
    elif isinstance(thing, History):
        yield from _of_config(thing.meta.get("config"))
    elif isinstance(thing, Sweep):
        for history in thing.histories:
            yield from _works_of(history)
    elif isinstance(thing, type):
        yield thing.__name__, PARTS.get(thing, () if _is_ours(thing) else None)
    elif dataclasses.is_dataclass(thing):
        yield from _of_record(thing)
    elif callable(thing) and hasattr(thing, "__name__"):
        yield thing.__name__, NAMED.get(thing.__name__, ()) if _is_ours(thing) else None
    else:
        raise TypeError(
            "cite() takes algorithms, problems, parts, histories, recipes and names of such; "
            f"got {type(thing).__name__}. Hand several in one by one: cite(problem, algorithm)."
        )


def _of_record(thing: Any) -> Iterator[Found]:
    """Of a record and of all records that it holds; arrays, words and functions in it are its settings."""
    part, name = type(thing), type(thing).__name__
    fields = {field.name: getattr(thing, field.name, None) for field in dataclasses.fields(thing)}
    yield name, PARTS.get(part, () if _is_ours(part) else None)
    yield name, _by_choice(part, fields)
    if isinstance(thing, Algorithm):
        yield thing.name, NAMED.get(thing.name, ())
    for value in fields.values():
        for held in value if isinstance(value, (list, tuple)) else (value,):
            if dataclasses.is_dataclass(held) and not isinstance(held, type):
                yield from _of_record(held)


def _of_config(config: Any) -> Iterator[Found]:
    """Of a description that a history carries, in which parts are told by their names."""
    if isinstance(config, list):
        for held in config:
            yield from _of_config(held)
    elif isinstance(config, dict):
        name = config.get("part", "")
        for part, keys in PARTS.items():
            if part.__name__ == name:
                yield name, keys
                yield name, _by_choice(part, config)
        if name == "Algorithm":
            yield name, NAMED.get(config.get("name", ""), ())
        for held in config.values():
            yield from _of_config(held)


def _by_choice(part: type, fields: dict[str, Any]) -> tuple[str, ...]:
    """What settings of a part add."""
    if part is Deployment:
        if fields["period"] > 1 and not fields["each_step"]:
            return (PERDOMO, *PARTS[Every])
        return (PERDOMO,) if fields["each_step"] or fields["period"] else ()
    chosen = (CHOICES.get((part, name, value), ()) for name, value in fields.items() if isinstance(value, (bool, str)))
    return tuple(key for keys in chosen for key in keys)


def _by_name(name: str) -> tuple[str, ...]:
    parts: dict[str, tuple[str, ...]] = {}
    for part, keys in PARTS.items():
        parts[part.__name__] = parts.get(part.__name__, ()) + keys
    known = {**parts, **NAMED}
    if name not in known:
        raise ValueError(f"cite({name!r}): no part, recipe or data set of this name.{nearest(name, known)}")
    return known[name]


def _is_ours(thing: Any) -> bool:
    return (getattr(thing, "__module__", None) or "").split(".")[0] == "performative"


def _software() -> str:
    fields = {
        "author": "{The performative maintainers}",
        "title": "{performative: Federated Learning When Deploying the Model Changes the Data}",
        "howpublished": "Python package",
        "note": f"Version {performative.__version__}",
    }
    return _entry("performative", "misc", fields)


def _entry(key: str, kind: str, fields: dict[str, str]) -> str:
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])

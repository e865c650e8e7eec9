"""From a record of parts to the works behind them."""

import dataclasses
import types
from collections.abc import Iterator, Mapping
from typing import Any

import performative
from performative import recipes
from performative._base.checks import nearest
from performative.algorithm import Algorithm
from performative.facts import AbstractPart, chain, is_ours
from performative.history import History
from performative.papers.citations.bibliography import WORKS
from performative.sweep import Sweep

# (name, keys); keys is None for a third-party part.
Found = tuple[str, tuple[str, ...] | None]


def cite(*things: object) -> str:
    """Return BibTeX for the works behind what you used and for this package, each work once.

    Args:
        things: algorithms, problems, parts (a wrapper includes what it wraps), pf.Privacy, histories, sweeps, recipes
            and other functions, or names: pf.cite("p_fedavg"), pf.cite(problem, algorithm), pf.cite(history). A name or
            a function cites only itself; the algorithm that a recipe returns also cites its parts.

    A history knows its algorithm but not its problem. A custom part lists its sources in `references`, as our keys or
    as your own BibTeX entries; a comment at the end lists the parts without references. The docstring of a part says
    what each work is cited for.
    """
    keys: set[str] = set()
    unknown: set[str] = set()
    for thing in things:
        for name, found in _works_of(thing):
            keys.update(found or ())
            if found is None or any(key not in WORKS and not key.lstrip().startswith("@") for key in found):
                unknown.add(name)
    entries = [_software(), *(entry for key, entry in WORKS.items() if key in keys)]
    entries += sorted(key.strip() for key in keys - set(WORKS) if key.lstrip().startswith("@"))
    if unknown:
        entries.append(f"% Not from this package; please look up their sources: {', '.join(sorted(unknown))}")
    return "\n\n".join(entries) + "\n"


def _works_of(thing: object) -> Iterator[Found]:
    if isinstance(thing, str):
        yield thing, _by_name(thing)
    elif isinstance(thing, History):
        yield from _of_config(thing.meta.get("config"))
    elif isinstance(thing, Sweep):
        for history in thing.histories:
            yield from _works_of(history)
    elif isinstance(thing, type):
        yield thing.__name__, _references(thing)
    elif dataclasses.is_dataclass(thing):
        for record in chain(thing, object):
            yield from _of_record(record)
    elif callable(thing) and hasattr(thing, "__name__"):
        yield thing.__name__, _references(thing)
    else:
        raise TypeError(
            "cite() takes algorithms, problems, parts, histories, recipes and their names; "
            f"got {type(thing).__name__}. Pass several as separate arguments: cite(problem, algorithm)."
        )


def _references(thing: Any, settings: Mapping[str, Any] | None = None) -> tuple[str, ...] | None:
    """References declared by a class or function itself, not inherited; None if it declares none."""
    told = vars(thing)
    if "references" not in told:
        return () if is_ours(thing) else None
    more = thing.more_references(settings) if settings is not None and "more_references" in told else ()
    return (*thing.references, *more)


def _of_record(record: Any) -> Iterator[Found]:
    """Works of a record alone; arrays, strings and functions in it are its settings."""
    kind: Any = type(record)
    fields = {field.name: getattr(record, field.name, None) for field in dataclasses.fields(record)}
    yield kind.__name__, _references(kind, fields)
    if isinstance(record, Algorithm):
        yield record.name, _of_recipe(record.name)


def _of_recipe(name: Any) -> tuple[str, ...]:
    return getattr(getattr(recipes, str(name), None), "references", ())


def _of_config(config: Any) -> Iterator[Found]:
    """Works of the config stored in a history, which names its parts."""
    if isinstance(config, list):
        for held in config:
            yield from _of_config(held)
    elif isinstance(config, dict):
        name = config.get("part", "")
        for kind in _kinds(name):
            yield name, _references(kind, config)
        if name == Algorithm.__name__:
            yield name, _of_recipe(config.get("name", ""))
        for held in config.values():
            yield from _of_config(held)


def _kinds(name: str, above: Any = AbstractPart) -> Iterator[Any]:
    """Imported part classes of this name that declare references."""
    for kind in above.__subclasses__():
        if kind.__name__ == name and "references" in vars(kind):
            yield kind
        yield from _kinds(name, kind)


def _by_name(name: str) -> tuple[str, ...]:
    found = [keys for kind in _kinds(name) if (keys := _references(kind)) is not None]
    found += [thing.references for thing in _public(name) if "references" in getattr(thing, "__dict__", ())]
    if not found:
        known = [shown for module in _modules() for shown in module.__all__]
        raise ValueError(f"cite({name!r}): no part, recipe or data set of this name.{nearest(name, known)}")
    return tuple(dict.fromkeys(key for keys in found for key in keys))


def _public(name: str) -> Iterator[Any]:
    """Public objects of this package with that name."""
    for module in _modules():
        if name in module.__all__:
            yield getattr(module, name)


def _modules() -> Iterator[Any]:
    """The public modules of the package; lazily loaded ones come last."""
    shown = (getattr(performative, name) for name in (*performative.__all__, "data", "audit"))
    yield from (performative, *(one for one in shown if isinstance(one, types.ModuleType)))


def _software() -> str:
    return f"""@misc{{performative,
  author = {{{{The performative maintainers}}}},
  title = {{{{performative: Federated Learning When Deploying the Model Changes the Data}}}},
  howpublished = {{Python package}},
  note = {{Version {performative.__version__}}},
}}"""

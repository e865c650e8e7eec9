"""What a file can name: the contents of the slot modules, and the plugins of installed packages."""

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable
from importlib import import_module
from typing import Any

import equinox as eqx
from jaxtyping import PyTree

from performative._base import plugins

# Key in the file -> module with the parts of that slot. No module for metrics: built-in ones are always recorded.
SLOTS = {
    "population": "populations",
    "share": "populations.shares",
    "shift": "populations.shifts",
    "path": "paths",
    "estimator": "estimators",
    "family": "families",
    "participation": "participation",
    "channel": "channels",
    "aggregator": "aggregators",
    "sharing": "sharing",
    "tx": "optimizers",
    "rate": "schedules",
    "batch": "batches",
    "loss": "losses",
    "domain": "domains",
    "deploy": "deploy",
    "case": "cases",
    "metrics": "metrics",
    "callbacks": "callbacks",
}


def arms(annotation: Any) -> tuple[Any, ...]:
    """The alternatives of a union; one if it is not a union. A generic part counts by its class."""
    if annotation is PyTree:
        return (Any,)
    origin = typing.get_origin(annotation)
    if is_module(origin):
        return (origin,)
    if isinstance(annotation, types.UnionType) or origin is typing.Union:
        return tuple(arm for part in typing.get_args(annotation) for arm in arms(part))
    return (annotation,)


def is_module(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, eqx.Module)


def is_record(annotation: Any) -> bool:
    """Whether a table without a name is allowed: one class of named fields, such as a Clock."""
    return dataclasses.is_dataclass(annotation) and not inspect.isabstract(annotation)


def is_part(annotation: Any) -> bool:
    """Whether a part or a function (a loss) is allowed."""
    return is_module(annotation) or typing.get_origin(annotation) is Callable


def _makes(thing: Any) -> Any:
    """What calling it returns: a class itself, a factory's annotated result, None for other functions."""
    if is_module(thing):
        return None if inspect.isabstract(thing) or thing.__name__.startswith("Abstract") else thing
    if inspect.isfunction(thing):
        result = inspect.signature(thing).return_annotation
        return result if is_module(result) else None
    return None


@functools.cache
def _public(module: str) -> dict[str, Any]:
    """Public names of a slot module: its `__all__`, otherwise what it defines itself."""
    here = import_module(f"performative.{module}")
    listed = getattr(here, "__all__", None)
    if listed is None:
        listed = [n for n, v in vars(here).items() if getattr(v, "__module__", None) == here.__name__]
    return {name: getattr(here, name) for name in listed if not name.startswith(("_", "as_"))}


def _offered(module: str) -> dict[str, Any]:
    """Parts of installed packages that belong to a slot module, by its abstract classes."""
    bases = tuple(thing for name, thing in _public(module).items() if name.startswith("Abstract"))
    made = {name: (thing, _makes(thing)) for name, thing in plugins.load("parts").items()}
    return {name: thing for name, (thing, result) in made.items() if result and issubclass(result, bases)}


def parts(module: str, kinds: tuple[Any, ...] = (Any,)) -> dict[str, Callable[..., Any]]:
    """Name -> constructor of a part of a module. `kinds` restricts them to the classes of an annotation."""
    wanted = tuple(kind for kind in kinds if is_module(kind))
    found = {**_offered(module), **_public(module)}
    made = {name: (thing, _makes(thing)) for name, thing in found.items()}
    return {
        name: thing
        for name, (thing, result) in made.items()
        if result is not None and (not wanted or issubclass(result, wanted))
    }


def functions(module: str, *arguments: str) -> dict[str, Callable[..., Any]]:
    """Functions of a module that are used as is, such as the loss `squared(theta, z)`."""
    found: dict[str, Callable[..., Any]] = {}
    offered = plugins.load("parts") if module == SLOTS["loss"] else {}
    for name, thing in {**offered, **_public(module)}.items():
        if inspect.isfunction(thing) and _makes(thing) is None:
            names = tuple(inspect.signature(thing).parameters)
            if names[: len(arguments)] == arguments:
                found[name] = thing
    return found


def recipes() -> dict[str, Callable[..., Any]]:
    """Functions that return an Algorithm."""
    from performative.algorithm import Algorithm

    own = {name: make for name, make in parts("recipes", (Algorithm,)).items() if make is not Algorithm}
    return plugins.add_to(own, "recipes")


def callbacks() -> dict[str, Any]:
    """Built-in callbacks (without records such as `News`), and plugins."""
    own = {name: thing for name, thing in _public("callbacks").items() if not dataclasses.is_dataclass(thing)}
    return plugins.add_to(own, "callbacks")


def is_made(thing: Any) -> bool:
    """Whether a metric or callback is built from options: a class, or a function annotated to return a Metric."""
    return inspect.isclass(thing) or _makes(thing) is not None

"""Helpers for recipes: slots shown by `help`, parts replaced by keyword, wrappers around given parts."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from performative._base.checks import nearest
from performative.aggregators import Mean
from performative.algorithm import Algorithm, Parts
from performative.estimators import Minibatch
from performative.participation import Full
from performative.schedules import Rate

R = TypeVar("R", bound=Callable[..., Algorithm])


def recipe(function: R) -> R:
    """Let `help` and editors show the slots that `**parts` accepts; `= ...` if a recipe has a default.

    A misspelled keyword is reported first, whatever else is missing.
    """
    slots = inspect.signature(Algorithm).parameters
    own = list(inspect.signature(function).parameters.values())[:-1]
    keyword = inspect.Parameter.KEYWORD_ONLY
    rest = [slots[name].replace(kind=keyword, default=...) for name in slots if name in Parts.__annotations__]
    vars(function)["__signature__"] = inspect.Signature([*own, *rest], return_annotation=Algorithm)
    known = list(dict.fromkeys([*(parameter.name for parameter in own), *slots]))

    @functools.wraps(function)
    def make(*args: Any, **parts: Any) -> Algorithm:
        for slot in parts:
            if slot not in known:
                raise ValueError(f"{function.__name__} has no argument {slot!r}.{nearest(slot, known)}")
        return function(*args, **parts)

    return cast(R, make)


def combine(name: str, rate: Rate, defaults: dict[str, Any], parts: Mapping[str, Any]) -> Algorithm:
    """A recipe's algorithm: its own parts, overridden by those given."""
    return Algorithm(**{"rate": rate, "name": name, **defaults, **parts})


def wrapped(parts: Mapping[str, Any], slot: str, wrap: Callable[[Any], Any]) -> dict[str, Any]:
    """The parts with a wrapper around the given part of a slot, or around its default."""
    default: Any = {"estimator": Minibatch(), "aggregator": Mean()}[slot]
    return {**parts, slot: wrap(parts.get(slot, default))}


def central(name: str, parts: Mapping[str, Any]) -> dict[str, Any]:
    """The parts that a learner without local steps fixes; raise if they are given."""
    fixed = {"local_steps": 1, "participation": Full()}
    clash = [slot for slot in fixed if slot in parts]
    if clash:
        raise ValueError(f"{name} fixes E = 1 and full participation; drop {clash} or use another recipe.")
    return fixed

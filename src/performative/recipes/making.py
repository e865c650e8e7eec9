"""What recipes are made with: slots shown by `help`, parts replaced by keyword, wrappers around what is given."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from performative._base.checks import nearest
from performative.aggregators import Mean
from performative.algorithm import Algorithm, Parts
from performative.estimators import Minibatch
from performative.participation import Full
from performative.schedules import Rate

R = TypeVar("R", bound=Callable[..., Algorithm])


def recipe(function: R) -> R:
    """Let `help` and editors show the slots that `**parts` stands for; `= ...` where a recipe has a default."""
    slots = inspect.signature(Algorithm).parameters
    own = list(inspect.signature(function).parameters.values())[:-1]
    keyword = inspect.Parameter.KEYWORD_ONLY
    rest = [slots[name].replace(kind=keyword, default=...) for name in slots if name in Parts.__annotations__]
    vars(function)["__signature__"] = inspect.Signature([*own, *rest], return_annotation=Algorithm)
    return function


def combine(name: str, rate: Rate, defaults: dict[str, Any], parts: Mapping[str, Any]) -> Algorithm:
    """A recipe's record: its own parts, replaced by those given."""
    known = [field.name for field in dataclasses.fields(Algorithm) if field.name != "rate"]
    for slot in parts:
        if slot not in known:
            raise ValueError(f"{name} has no argument {slot!r}.{nearest(slot, known)}")
    return Algorithm(**{"rate": rate, "name": name, **defaults, **parts})


def wrapped(parts: Mapping[str, Any], slot: str, wrap: Callable[[Any], Any]) -> dict[str, Any]:
    """The parts with a wrapper around what is given for a slot, or around its default."""
    default: Any = {"estimator": Minibatch(), "aggregator": Mean()}[slot]
    return {**parts, slot: wrap(parts.get(slot, default))}


def central(name: str, parts: Mapping[str, Any]) -> dict[str, Any]:
    """What a learner without local steps fixes; refused where it is given."""
    fixed = {"local_steps": 1, "participation": Full()}
    clash = [slot for slot in fixed if slot in parts]
    if clash:
        raise ValueError(f"{name} fixes E = 1 and full participation; drop {clash} or use another recipe.")
    return fixed

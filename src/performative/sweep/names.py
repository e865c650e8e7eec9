"""Dotted names of what a sweep varies: "rate.scale", "population.sensitivity", "weights"."""

import dataclasses
import inspect
from typing import Any

import numpy as np

from performative._base.checks import nearest
from performative._base.describe import describe
from performative.algorithm import Algorithm
from performative.problem import Problem


def set_by_name(problem: Problem, algorithm: Algorithm, name: str, value: Any) -> tuple[Problem, Algorithm]:
    """The problem and the algorithm with one field replaced, converted and checked as its constructor would."""
    path = name.split(".")
    if path[0] in ("problem", "algorithm"):
        owner, path = path[0], path[1:]
        if not path:
            if owner == "problem" and isinstance(value, Problem):
                return value, algorithm
            if owner == "algorithm" and isinstance(value, Algorithm):
                return problem, value
            raise ValueError(f"over: {name!r} must hold {owner.capitalize()}s; got {value!r}.")
    else:
        owner = "algorithm" if path[0] in _field_names(algorithm) else "problem"
        if path[0] not in _field_names(algorithm) + _field_names(problem):
            known = _field_names(algorithm) + _field_names(problem)
            raise ValueError(f"over: there is no {name!r} to vary.{nearest(path[0], known)}")
    if owner == "algorithm":
        return problem, _replace(algorithm, path, value, name)
    return _replace(problem, path, value, name), algorithm


def _field_names(part: Any) -> list[str]:
    return [f.name for f in dataclasses.fields(part)]


def _replace(part: Any, path: list[str], value: Any, name: str) -> Any:
    """Made anew by its constructor, so that whatever that works out or checks is right again."""
    # A field may be kept under another name than its argument's, where a method has that one.
    known = dataclasses.fields(part) if dataclasses.is_dataclass(part) else ()
    fields = {field.metadata.get("argument", field.name): field for field in known}
    wanted = list(inspect.signature(type(part)).parameters)
    made_of = [p for p in wanted if p in fields or hasattr(part, p)]
    if not known or path[0] not in made_of:
        raise ValueError(
            f"over: {name!r} does not lead to an argument of {type(part).__name__}.{nearest(path[0], made_of)}"
        )
    if lost := [p for p in wanted if p not in made_of]:
        raise ValueError(
            f"over: {type(part).__name__} does not keep its argument {lost[0]!r}, so it cannot be made again with "
            f"another {path[0]!r}; vary the whole part instead."
        )
    if set(fields) != set(made_of) and fields[path[0]].metadata.get("table"):
        raise ValueError(
            f"over: {type(part).__name__} rearranges {path[0]!r} when it is made; vary the whole population instead."
        )
    arguments = {p: getattr(part, fields[p].name if p in fields else p) for p in made_of}
    arguments[path[0]] = _replace(arguments[path[0]], path[1:], value, name) if path[1:] else value
    kind: Any = type(part)
    return kind(**arguments)


def name_of(setting: dict[str, Any]) -> str:
    """A setting in words: "rate=0.1, local_steps=5"."""
    return ", ".join(f"{name}={label_of(value)}" for name, value in setting.items())


def label_of(value: Any) -> Any:
    """A value in words; numbers and words as they are."""
    if isinstance(value, (np.integer, np.floating)):
        return value.item()
    return value if isinstance(value, (int, float, str)) else str(describe(value))

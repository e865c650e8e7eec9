"""Dotted names of what a sweep varies: "rate.scale", "population.sensitivity", "weights"."""

import dataclasses
import inspect
import itertools
from collections.abc import Mapping, Sequence
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
            raise ValueError(f"over: {name!r} must list {owner.capitalize()}s; got {value!r}.")
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
    """Rebuild a part with its constructor, so derived values and checks are up to date."""
    known = dataclasses.fields(part) if dataclasses.is_dataclass(part) else ()
    fields = {field.name: field for field in known}
    wanted = list(inspect.signature(type(part)).parameters)
    made_of = [p for p in wanted if p in fields or hasattr(part, p)]
    if not known or path[0] not in made_of:
        raise ValueError(
            f"over: {name!r} does not lead to an argument of {type(part).__name__}.{nearest(path[0], made_of)}"
        )
    if lost := [p for p in wanted if p not in made_of]:
        raise ValueError(
            f"over: {type(part).__name__} does not store its argument {lost[0]!r}, so it cannot be rebuilt with "
            f"another {path[0]!r}; vary the whole part instead."
        )
    if set(fields) != set(made_of) and fields[path[0]].metadata.get("table"):
        raise ValueError(
            f"over: {type(part).__name__} rearranges {path[0]!r} when it is created; vary the whole population instead."
        )
    arguments = {p: getattr(part, p) for p in made_of}
    arguments[path[0]] = _replace(arguments[path[0]], path[1:], value, name) if path[1:] else value
    kind: Any = type(part)
    return kind(**arguments)


def name_of(setting: dict[str, Any]) -> str:
    """A setting as text: "rate=0.1, local_steps=5"."""
    return ", ".join(f"{name}={label_of(value)}" for name, value in setting.items())


def label_of(value: Any) -> Any:
    """A value as text; numbers and strings unchanged."""
    if isinstance(value, (np.integer, np.floating)):
        return value.item()
    return value if isinstance(value, (int, float, str)) else str(describe(value))


def read_settings(over: Any) -> list[dict[str, Any]]:
    """One {name: value} per setting: as listed, or all combinations."""
    if isinstance(over, Mapping):
        if any(isinstance(v, str) or not hasattr(v, "__len__") for v in over.values()):
            raise ValueError(f"over must map names to lists of values, such as {{'rate': [0.1, 0.2]}}; got {over!r}.")
        if not over or any(len(values) == 0 for values in over.values()):
            raise ValueError("over needs at least one name with at least one value.")
        names = [one for name in over for one in (name if isinstance(name, tuple) else (name,))]
        if twice := sorted({str(name) for name in names if names.count(name) > 1}):
            raise ValueError(f"over: {', '.join(twice)} is set twice; use each name once.")
        columns = [[_named(name, value) for value in values] for name, values in over.items()]
        return [dict(pair for one in row for pair in one) for row in itertools.product(*columns)]
    if not isinstance(over, Sequence) or not over or not all(isinstance(one, Mapping) and one for one in over):
        raise ValueError(
            "over must map names to lists of values, such as {'rate': [0.1, 0.2]}, or list settings, such as "
            f"[{{'rate': 0.1, 'local_steps': 5}}]; got {over!r}."
        )
    return [dict(one) for one in over]


def _named(name: Any, value: Any) -> list[tuple[str, Any]]:
    """What one value of `over` sets: several names at once if the name is a tuple."""
    if not isinstance(name, tuple):
        return [(name, value)]
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != len(name):
        raise ValueError(f"over: {name!r} needs {len(name)} values at a time; got {value!r}.")
    return list(zip(name, value, strict=True))


def values_of(settings: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """The distinct values of each name."""
    values: dict[str, list[Any]] = {}
    for name, value in (pair for setting in settings for pair in setting.items()):
        known = values.setdefault(name, [])
        if not any(value is one or np.array_equal(value, one) for one in known):
            known.append(value)
    return values

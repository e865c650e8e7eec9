"""Tunable numbers of an algorithm: where they are, their bounds, and their coordinates."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from performative._base.checks import nearest
from performative.algorithm import Algorithm
from performative.problem import Problem
from performative.schedules import Constant
from performative.sweep.names import set_by_name

# How far inside its bounds a search starts.
_INSIDE = 1e-3
# Larger in magnitude than any finite bound that a part sets for its numbers.
_HUGE = 1e12


@dataclasses.dataclass(frozen=True, eq=False)
class Coordinates:
    """A number, or an array, in unconstrained coordinates.

    Attributes:
        name: as in `pf.sweep`
        inside: the coordinates of a value, on the host; outside: the value of coordinates, traced
    """

    name: str
    start: np.ndarray
    inside: Callable[[np.ndarray], np.ndarray]
    outside: Callable[[Array], Array]


def read_free(free: Any, algorithm: Algorithm) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Numbers to optimize, {name: bounds or None}, and values to try, {name: values}."""
    if isinstance(free, str):
        free = [free]
    if not isinstance(free, Mapping):
        if not isinstance(free, Sequence) or not all(isinstance(name, str) for name in free):
            raise ValueError(f'free must list names, such as ["rate"], or map them to bounds or values; got {free!r}.')
        free = dict.fromkeys(free)
    if not free:
        raise ValueError('free needs at least one name, such as "rate".')
    found: dict[str, Any] = {}
    tried: dict[str, list[Any]] = {}
    for name, choice in free.items():
        if choice is None or isinstance(choice, tuple):
            found |= dict.fromkeys(_spelled_out(algorithm, name), choice)
        elif isinstance(choice, (list, range, np.ndarray)) and len(choice):
            tried[name] = list(choice)
        else:
            raise ValueError(
                f"free: {name!r} must come with bounds (low, high) or with a list of values to try; got {choice!r}."
            )
    return found, tried


def _spelled_out(algorithm: Algorithm, name: str) -> list[str]:
    """All numbers of a schedule, if the rate is one."""
    if name != "rate" or isinstance(algorithm.rate, Constant):
        return [name]
    fields = dataclasses.fields(algorithm.rate) if dataclasses.is_dataclass(algorithm.rate) else ()
    names = [f"rate.{field.name}" for field in fields if not field.metadata.get("static")]
    if not names:
        raise ValueError(
            "free: the rate is a function with unknown parameters; use a schedule such as pf.schedules.harmonic."
        )
    return names


def value_of(algorithm: Algorithm, name: str) -> np.ndarray:
    """The current value; raises if it is not differentiable."""
    part: Any = algorithm
    path = name.removeprefix("algorithm.").split(".")
    for k, word in enumerate(path):
        known = dataclasses.fields(part) if dataclasses.is_dataclass(part) else ()
        fields = [field.name for field in known]
        if word not in fields:
            raise ValueError(f"free: {name!r} does not lead to a number of the algorithm.{nearest(word, fields)}")
        part = getattr(part, word)
        if k == len(path) - 1 and isinstance(part, Constant):
            part = part.value
    if not isinstance(part, (float, np.ndarray, Array)) or not np.issubdtype(np.result_type(part), np.inexact):
        raise ValueError(
            f"free: {name} = {part!r} is not a differentiable number; pass values to try, "
            f"such as free={{{name!r}: [1, 2, 5]}}."
        )
    return np.asarray(part, np.float64)


def coordinates_of(problem: Problem, algorithm: Algorithm, name: str, bounds: Any) -> Coordinates:
    """Logarithms of positive numbers, logits between bounds; probabilities keep summing to one."""
    value = value_of(algorithm, name)
    if bounds is None and value.ndim == 1 and len(value) > 1 and np.all(value > 0) and abs(value.sum() - 1) < 1e-9:
        return Coordinates(name, value, np.log, lambda x: jnp.exp(x - jnp.max(x)) / jnp.exp(x - jnp.max(x)).sum())
    low, high = _read_bounds(name, bounds) if bounds is not None else _probed(problem, algorithm, name, value)
    if np.isfinite(high):
        width = high - low
        start = np.asarray(np.clip(value, low + _INSIDE * width, high - _INSIDE * width))
        return Coordinates(
            name, start, lambda v: np.log((v - low) / (high - v)), lambda x: low + width / (1.0 + jnp.exp(-x))
        )
    if np.isfinite(low):
        start = np.asarray(np.where(value > low, value, low + _INSIDE * max(1.0, abs(low))))
        return Coordinates(name, start, lambda v: np.log(v - low), lambda x: low + jnp.exp(x))
    return Coordinates(name, value, lambda v: v, lambda x: x)


def _read_bounds(name: str, bounds: Any) -> tuple[float, float]:
    try:
        low, high = (float(one) for one in bounds)
    except (TypeError, ValueError):
        low = high = 0.0
    if not low < high:
        raise ValueError(f"free: {name!r} needs bounds (low, high) with low < high; got {bounds!r}.")
    return low, high


def _probed(problem: Problem, algorithm: Algorithm, name: str, value: np.ndarray) -> tuple[float, float]:
    """The range that the part's constructor accepts: all numbers, those >= 0, or those in [0, 1]."""

    def takes(number: float) -> bool:
        try:
            set_by_name(problem, algorithm, name, np.full(value.shape, number))
        except ValueError:
            return False
        return True

    return (-np.inf if takes(-_HUGE) else 0.0), (np.inf if takes(_HUGE) else 1.0)

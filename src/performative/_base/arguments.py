"""Check arguments against their annotations, so a wrong one is reported by name before it is used.

    @checked
    def total_time(steps: float, local_steps: int, cost: float) -> float: ...

    total_time("many", 4, 10.0)      ValueError: total_time: steps must be one number; got 'many'.

`float` accepts any real number (also an array of shape ()), `int` an integer; both are converted to Python's own types.
Further constraints (positive, at most 1) are up to the function. Annotations not listed in `_read` (Any, arrays with
shapes) are not checked.
"""

import collections.abc
import dataclasses
import functools
import inspect
import math
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import numpy as np

from performative._base.checks import nearest
from performative.types import ArrayLike, as_array, as_numbers, is_concrete

F = TypeVar("F", bound=Callable[..., Any])
# Annotations beyond Python's own types. Numbers are passed on as a float or as an array of floats.
Count = Annotated[int, "a whole number >= 1"]
Finite = Annotated[float, "one finite number"]
Positive = Annotated[float, "a positive number"]
NonNegative = Annotated[float, "finite and not negative"]
Size = Annotated[float, "a number >= 0, or inf if unknown"]
Values = Annotated[Any, "a finite number or an array of finite numbers"]
Extended = Annotated[Any, "a number or an array of numbers, which may be infinite"]
_RANGES: dict[Any, Callable[[float], bool]] = {
    Finite: math.isfinite,
    Positive: lambda x: 0 < x < math.inf,
    NonNegative: lambda x: 0 <= x < math.inf,
    Size: lambda x: x >= 0,
}
_WRONG = object()


def spelt(function: F) -> F:
    """Wrap the function to name a misspelled keyword before a missing argument: `run(round=3)`."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def read(*args: Any, **options: Any) -> Any:
        bind(signature, function.__name__, args, options)
        return function(*args, **options)

    return typing.cast(F, read)


def checked(function: F) -> F:
    """Wrap the function to reject arguments that do not match its annotations, and misspelled keywords."""
    signature = inspect.signature(function)
    owner = function.__qualname__.removesuffix(".__init__").split(".")[-1]
    wanted = {p.name: p.annotation for p in signature.parameters.values() if p.annotation is not p.empty}

    @functools.wraps(function)
    def read(*args: Any, **options: Any) -> Any:
        given = bind(signature, owner, args, options)
        for name, value in given.arguments.items():
            if name in wanted:
                given.arguments[name] = read_argument(owner, name, value, wanted[name])
        return function(*given.args, **given.kwargs)

    return typing.cast(F, read)


def bind(
    signature: inspect.Signature, owner: str, args: tuple[Any, ...], options: dict[str, Any]
) -> inspect.BoundArguments:
    """Match arguments to parameters; the error for an unknown keyword names the nearest one."""
    try:
        return signature.bind(*args, **options)
    except TypeError as error:
        known = [name for name in signature.parameters if name not in ("self", "cls")]
        for name in options:
            if name not in known:
                raise TypeError(f"{owner}() has no argument {name!r}.{nearest(name, known)}") from error
        raise TypeError(f"{owner}(): {error}") from error


def check_fields(record: Any) -> None:
    """The same for a frozen dataclass, from its `__post_init__`."""
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        object.__setattr__(record, field.name, read_argument(type(record).__name__, field.name, value, field.type))


def read_argument(owner: str, name: str, value: Any, wanted: Any) -> Any:
    """Convert the value as annotated, or raise a ValueError that names the argument."""
    found = _read(name, value, wanted)
    if found is _WRONG:
        raise ValueError(f"{owner}: {name} must be {_words(name, wanted)}; got {_short(value)}.")
    return found


def _read(name: str, value: Any, wanted: Any) -> Any:
    if isinstance(wanted, (str, typing.TypeVar)) or wanted is Any or isinstance(value, collections.abc.Iterator):
        return value  # an iterator is read once, by the function itself
    if not is_concrete(value):
        return value
    if wanted is None or wanted is type(None):
        return value if value is None else _WRONG
    if wanted is float:
        return _number(value)
    if wanted is int:
        whole = (
            isinstance(value, (int, np.integer)) and not isinstance(value, bool) and not (name == "seed" and value < 0)
        )
        return int(value) if whole else _WRONG
    if wanted is bool:
        return bool(value) if isinstance(value, (bool, np.bool_)) else _WRONG
    if wanted in (Values, Extended):
        return _numbers(value, finite=wanted == Values)
    if wanted in _RANGES:
        found = _number(value)
        return found if found is not _WRONG and _RANGES[wanted](found) else _WRONG
    if wanted == Count:
        found = _read(name, value, int)
        return found if found is not _WRONG and found >= 1 else _WRONG
    origin, inside = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        # Floats last, so an allowed integer is not converted to a float.
        for one in sorted(inside, key=lambda kind: kind is float):
            if (found := _read(name, value, one)) is not _WRONG:
                return found
        return _WRONG
    if origin is collections.abc.Callable or wanted is collections.abc.Callable:
        return value if callable(value) else _WRONG
    if origin in (collections.abc.Sequence, list, tuple):
        return _items(name, value, tuple if origin is tuple else list, inside)
    if origin in (collections.abc.Mapping, dict):
        return value if isinstance(value, collections.abc.Mapping) else _WRONG
    kind = origin or wanted
    return value if not _plain(kind) or isinstance(value, kind) else _WRONG


def _number(value: ArrayLike) -> Any:
    array = as_array(value)
    return float(array) if array.ndim == 0 and array.dtype.kind in "iuf" and not np.isnan(array) else _WRONG


def _numbers(value: ArrayLike, finite: bool) -> Any:
    array = as_numbers(value)
    if array is None or array.dtype.kind not in "iuf" or not np.all(np.isfinite(array) if finite else array == array):
        return _WRONG
    return np.asarray(array, np.float64) if array.ndim else float(array)


def _items(name: str, value: Any, kind: type, inside: tuple[Any, ...]) -> Any:
    listed = isinstance(value, collections.abc.Sequence) or (isinstance(value, np.ndarray) and value.ndim)
    if not listed or isinstance(value, (str, bytes)):
        return _WRONG
    if not inside or (kind is tuple and inside[-1] is not ...):
        return value
    items = [_read("", one, inside[0]) for one in value]
    return _WRONG if any(one is _WRONG for one in items) else kind(items)


def _plain(kind: object) -> bool:
    """Whether `isinstance` can check it: jaxtyping's array annotations are left to the shape checks."""
    return isinstance(kind, type) and not kind.__module__.startswith("jaxtyping")


def _words(name: str, wanted: Any) -> str:
    """The annotation in words."""
    if wanted is int:
        return "a whole number >= 0" if name == "seed" else "a whole number"
    plain = {float: "one number", bool: "True or False", str: "a text", None: "None", type(None): "None"}
    if wanted in plain:
        return plain[wanted]
    if wanted in (Count, Values, Extended, *_RANGES):
        return typing.get_args(wanted)[1]
    origin, inside = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_words(name, one) for one in inside))
    if origin is collections.abc.Callable or wanted is collections.abc.Callable:
        return "a function"
    if origin in (collections.abc.Sequence, list, tuple):
        return (
            "a list" if not inside or _words("", inside[0]) == "anything" else f"a list, each {_words('', inside[0])}"
        )
    if origin in (collections.abc.Mapping, dict):
        return "a dict"
    kind = origin or wanted
    return _one(kind.__name__) if _plain(kind) else "anything"


def _short(value: object) -> str:
    """The received value in one line; a part or an array would fill the screen."""
    text = repr(value)
    return text if len(text) <= 60 and "\n" not in text else _one(type(value).__name__)


def _one(name: str) -> str:
    """The name with its article."""
    return f"an {name}" if name[0] in "AEIOUaeiou" else f"a {name}"

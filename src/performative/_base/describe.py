"""Plain descriptions of problems and algorithms, stored in manifests and compared by checkpoints."""

import dataclasses
import hashlib
import inspect
import sys
import types
from typing import Any

import equinox as eqx
import jax
import numpy as np

# Arrays of up to this many numbers are written out.
_SMALL = 8


def describe(thing: object) -> Any:
    """Nested lists, dicts and strings, identical in every process; large arrays become a digest."""
    if thing is None or isinstance(thing, (bool, int, float, str)):
        return thing
    if isinstance(thing, (np.ndarray, np.generic, jax.Array)):
        array = np.asarray(thing)
        if array.size <= _SMALL:
            return array.tolist()
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
        return f"{array.dtype}{list(array.shape)}:{digest}"
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        fields = {f.name: describe(getattr(thing, f.name)) for f in dataclasses.fields(thing)}
        return {"part": type(thing).__name__, **fields}
    if isinstance(thing, dict):
        return {str(k): describe(v) for k, v in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [describe(v) for v in thing]
    name = f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', type(thing).__qualname__)}"
    if not isinstance(thing, types.FunctionType):
        return name
    held = [cell.cell_contents for cell in thing.__closure__ or () if cell != types.CellType()]
    # Captured functions are described by their code alone: one of them may be the function itself.
    inside = [
        _code_digest(value.__code__) if isinstance(value, types.FunctionType) else describe(value)
        for value in (*held, *(thing.__defaults__ or ()))
    ]
    return {"function": name, "code": _code_digest(thing.__code__), "holds": inside}


def shown(module: eqx.Module) -> str:
    """A module's `repr`, with the values of small arrays."""
    return eqx.tree_pformat(jax.tree.map(_by_value, module))


def short(part: Any, most: int = 160) -> str:
    """A part in one line, truncated if long."""
    named = getattr(part, "__name__", None) if not isinstance(part, eqx.Module) else None
    text = str(named) if named else " ".join((shown(part) if isinstance(part, eqx.Module) else repr(part)).split())
    text = text.replace("( ", "(").replace(" )", ")")  # line breaks at brackets
    return text if len(text) <= most else f"{text[: most - 3]}..."


class _Value(str):
    """Text that is shown without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def _by_value(leaf: object) -> Any:
    if not isinstance(leaf, (np.ndarray, np.generic, jax.Array)) or isinstance(leaf, jax.core.Tracer):
        return leaf
    if isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.extended):
        return leaf
    return _Value(np.asarray(leaf).tolist()) if leaf.size <= _SMALL else leaf


def _code_digest(code: types.CodeType) -> str:
    """A digest of a function's instructions and constants, including nested functions, but not its docstring."""
    constants = (None, *code.co_consts[1:]) if _has_docstring(code) else code.co_consts
    inner = [_code_digest(c) for c in constants if isinstance(c, types.CodeType)]
    plain = [repr(c) for c in constants if not isinstance(c, types.CodeType)]
    return hashlib.sha256(repr((code.co_code, plain, inner, code.co_names)).encode()).hexdigest()[:16]


def _has_docstring(code: types.CodeType) -> bool:
    """Whether the first constant is the docstring: later Pythons have a flag, earlier ones always put one there."""
    if sys.version_info >= (3, 13):
        return bool(code.co_flags & inspect.CO_HAS_DOCSTRING)
    return bool(code.co_consts) and isinstance(code.co_consts[0], str) and not code.co_name.startswith("<")


def differences(old: object, new: object, at: str = "") -> list[str]:
    """The places at which two descriptions differ, as 'path: old -> new'."""
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for key in sorted(old.keys() | new.keys()):
            found += differences(old.get(key), new.get(key), f"{at}.{key}" if at else key)
        return found
    return [] if old == new else [f"{at}: {old} -> {new}"]

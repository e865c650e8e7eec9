"""Compiled programs of one process: kept on disk, let go before memory maps run out, not made again without need."""

import os
import types
import weakref
from pathlib import Path
from typing import Any

import jax

from performative._base.messages import warn

# jax's settings are not known to type checkers.
_CONFIG: Any = jax.config
_MAPS, _LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
# Every compiled program holds a handful of memory maps. Linux ends a process that asks for more than its limit (65,530
# as it comes), from inside the compiler, where nothing can be caught: let them go well before.
_SHARE = 0.5
# Functions that differ in what they hold, made from the same lines: so many are chance, more are made in each call.
_MANY = 5
_made: dict[types.CodeType, list[weakref.ref[Any]]] = {}


def cache_compilations() -> None:
    """Keep compiled programs between processes, unless a place is set already or PERFORMATIVE_CACHE=off."""
    let_go()
    wish = os.environ.get("PERFORMATIVE_CACHE")
    if _CONFIG.jax_compilation_cache_dir is not None or wish == "off":
        return
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    _CONFIG.update("jax_compilation_cache_dir", wish or str(home / "performative" / "xla"))
    _CONFIG.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def let_go() -> bool:
    """Forget compiled programs where they hold half of the memory maps that the system allows; says whether it did."""
    try:
        held = _MAPS.read_bytes().count(b"\n")
        limit = int(_LIMIT.read_text())
    except (OSError, ValueError):  # another system, which has no such limit
        return False
    if held < _SHARE * limit:
        return False
    jax.clear_caches()
    return True


def same_function(function: Any, what: str = "loss") -> Any:
    """The function that was seen before where this one is made from the same lines and holds the same: a program that
    was compiled for that one serves. A loss that holds other arrays in each call is compiled anew each time: said once.
    """
    if not isinstance(function, types.FunctionType):
        return function
    known = _made.setdefault(function.__code__, [])
    for other in [there() for there in known]:
        if other is function or (other is not None and _hold_the_same(other, function)):
            return other
    if len(known) <= _MANY:
        known.append(weakref.ref(function))
    if len(known) == _MANY + 1:
        known.append(weakref.ref(function))  # once is enough
        warn(
            "function-made-anew",
            f"the {what} {function.__qualname__!r} has been made {_MANY + 1} times, holding something else each time, "
            "and each is compiled again. Define it once, or make it an equinox module whose numbers are leaves.",
        )
    return function


def _hold_the_same(one: types.FunctionType, other: types.FunctionType) -> bool:
    plain = not (one.__defaults__ or one.__kwdefaults__ or other.__defaults__ or other.__kwdefaults__)
    if one.__globals__ is not other.__globals__ or not plain:
        return False
    mine, others = one.__closure__ or (), other.__closure__ or ()
    return len(mine) == len(others) and all(_is_same(a, b) for a, b in zip(mine, others, strict=True))


def _is_same(one: types.CellType, other: types.CellType) -> bool:
    """Whether two cells hold the same thing; plain numbers and text may be equal, all else must be identical."""
    try:
        a, b = one.cell_contents, other.cell_contents
    except ValueError:  # a cell that is empty
        return False
    return a is b or (type(a) is type(b) and isinstance(a, (bool, int, float, str)) and a == b)

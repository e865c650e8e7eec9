"""Compiled programs of one process: cached on disk, freed before memory maps run out, recompiled only if needed."""

import os
import types
import weakref
from pathlib import Path
from typing import Any

import jax

from performative._base.messages import warn

# Type checkers do not know jax's settings.
_CONFIG: Any = jax.config
_MAPS, _LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
# Every compiled program uses a handful of memory maps. Linux kills a process that exceeds its limit (65,530 by default)
# from inside the compiler, where nothing can be caught: free them well before.
_SHARE = 0.5
# Functions from the same source lines with different closures: up to this many may be incidental, more suggest that
# every call creates one.
_MANY = 5
_made: dict[types.CodeType, list[weakref.ref[Any]]] = {}


def cache_compilations() -> None:
    """Cache compiled programs between processes, unless a cache is already set or PERFORMATIVE_CACHE=off."""
    let_go()
    wish = os.environ.get("PERFORMATIVE_CACHE")
    if _CONFIG.jax_compilation_cache_dir is not None or wish == "off":
        return
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    _CONFIG.update("jax_compilation_cache_dir", wish or str(home / "performative" / "xla"))
    _CONFIG.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def let_go() -> bool:
    """Drop compiled programs if they use half of the memory maps that the system allows; return whether it did."""
    try:
        held = _MAPS.read_bytes().count(b"\n")
        limit = int(_LIMIT.read_text())
    except (OSError, ValueError):  # another operating system, without such a limit
        return False
    if held < _SHARE * limit:
        return False
    jax.clear_caches()
    return True


def same_function(function: Any, what: str = "loss") -> Any:
    """An earlier function with the same source lines and closure, if any, so its compiled program is reused. A loss
    that closes over different arrays in each call is recompiled each time, which is warned about once.
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
            f"the {what} {function.__qualname__!r} has been created {_MANY + 1} times, each time with a different "
            "closure, and is recompiled each time. Define it once, or make it an equinox module whose numbers are "
            "leaves.",
        )
    return function


def _hold_the_same(one: types.FunctionType, other: types.FunctionType) -> bool:
    plain = not (one.__defaults__ or one.__kwdefaults__ or other.__defaults__ or other.__kwdefaults__)
    if one.__globals__ is not other.__globals__ or not plain:
        return False
    mine, others = one.__closure__ or (), other.__closure__ or ()
    return len(mine) == len(others) and all(_is_same(a, b) for a, b in zip(mine, others, strict=True))


def _is_same(one: types.CellType, other: types.CellType) -> bool:
    """Whether two cells hold the same value; plain numbers and strings may be equal, all else must be identical."""
    try:
        a, b = one.cell_contents, other.cell_contents
    except ValueError:  # an empty cell
        return False
    return a is b or (type(a) is type(b) and isinstance(a, (bool, int, float, str)) and a == b)

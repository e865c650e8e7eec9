"""Programs that run once or twice: compiling them is most of their time."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import equinox as eqx

P = ParamSpec("P")
T = TypeVar("T")


def quickly_compiled(function: Callable[P, T]) -> Callable[P, T]:
    """Jit with the compiler's optimizations off."""
    jit: Any = eqx.filter_jit  # hands on what jax.jit takes, though its signature does not say so
    return cast(Callable[P, T], jit(function, compiler_options={"xla_backend_optimization_level": 0}))

"""Programs that run only once or twice, so compilation dominates their run time."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import equinox as eqx

P = ParamSpec("P")
T = TypeVar("T")


def quickly_compiled(function: Callable[P, T]) -> Callable[P, T]:
    """Jit with the compiler's optimizations off."""
    jit: Any = eqx.filter_jit  # forwards jax.jit's options, though its signature does not say so
    return cast(Callable[P, T], jit(function, compiler_options={"xla_backend_optimization_level": 0}))

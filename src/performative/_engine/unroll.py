"""Unroll local steps that are few and short."""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import PyTree

from performative._engine.memory import bodies

# Steps are unrolled up to this many operations in total. A loop launches every operation in every step, which is
# expensive on a GPU; unrolled steps take longer to compile.
_OPERATIONS = {"cpu": 200}
_ELSEWHERE = 2000


def unrolled(step: Callable[[PyTree, PyTree], PyTree], start: PyTree, inputs: PyTree, steps: int) -> int:
    """How many steps of `jax.lax.scan` to unroll: all of them, or 1."""
    most = _OPERATIONS.get(jax.default_backend(), _ELSEWHERE)
    if steps > most:
        return 1
    first = jax.tree.map(lambda leaf: leaf[0], inputs)
    return steps if steps * _operations(jax.make_jaxpr(step)(start, first).jaxpr) <= most else 1


def _operations(jaxpr: Any) -> int:
    """The number of operations in a traced function and the functions that it calls."""
    return len(jaxpr.eqns) + sum(_operations(inner) for eqn in jaxpr.eqns for inner in bodies(eqn))

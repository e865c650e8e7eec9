"""Local steps written out one after the other, where they are few and short."""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import PyTree

from performative._engine.memory import bodies

# Operations of all steps together up to which they are written out. A loop costs a launch of every operation in every
# step, dear on a GPU; steps that are written out take longer to compile.
_OPERATIONS = {"cpu": 200}
_ELSEWHERE = 2000


def unrolled(step: Callable[[PyTree, PyTree], PyTree], start: PyTree, inputs: PyTree, steps: int) -> int:
    """How many steps of `jax.lax.scan` to write out: all of them, or 1."""
    most = _OPERATIONS.get(jax.default_backend(), _ELSEWHERE)
    if steps > most:
        return 1
    first = jax.tree.map(lambda leaf: leaf[0], inputs)
    return steps if steps * _operations(jax.make_jaxpr(step)(start, first).jaxpr) <= most else 1


def _operations(jaxpr: Any) -> int:
    """Those of a traced function, and of functions that it calls."""
    return len(jaxpr.eqns) + sum(_operations(inner) for eqn in jaxpr.eqns for inner in bodies(eqn))

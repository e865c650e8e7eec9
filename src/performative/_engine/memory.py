"""How much memory a program needs, estimated from its trace alone: nothing is compiled or run."""

import math
from typing import Any

import jax
from jax.extend.core import Literal
from jaxtyping import PyTree

# Results that a compiler writes to memory. It computes all others where they are read, unless many read them.
_WRITTEN = {
    "conv_general_dilated", "dot_general", "concatenate", "gather", "scatter", "scatter-add", "sort", "cumsum",
    "reduce_sum", "reduce_max", "reduce_window", "reduce_window_max", "select_and_scatter_add", "dynamic_update_slice",
    "random_bits", "threefry2x32", "scan", "while", "cond", "custom_jvp_call", "custom_vjp_call", "pad",
    "pure_callback",
}  # fmt: skip


def bytes_of(tree: PyTree) -> int:
    """Bytes of all arrays (or shapes) of a tree."""
    leaves = (leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "shape") and hasattr(leaf, "dtype"))
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)


def peak_bytes(jaxpr: Any) -> int:
    """Peak memory of a traced program, not counting its inputs.

    Each result that is written to memory lives from its creation to its last use; an intermediate result that the
    compiler fuses into its reader keeps its inputs alive. Buffers that the compiler adds or shares are not counted.
    """
    last: dict[Any, int] = {}
    for i, eqn in enumerate(jaxpr.eqns):
        for var in eqn.invars:
            if not isinstance(var, Literal):
                last[var] = i
    end = len(jaxpr.eqns)
    for var in jaxpr.outvars:
        if not isinstance(var, Literal):
            last[var] = end
    given = {*jaxpr.invars, *jaxpr.constvars}
    sources: dict[Any, set[Any]] = {var: set() for var in given}
    until: dict[Any, int] = {}
    born: dict[Any, int] = {}
    inner = [0] * (end + 1)
    for i, eqn in enumerate(jaxpr.eqns):
        inside = [peak_bytes(body) for body in bodies(eqn)]
        inner[i] = max(inside, default=0)
        made_of = set().union(*(sources.get(var, set()) for var in eqn.invars if not isinstance(var, Literal)))
        for var in eqn.outvars:
            if eqn.primitive.name in _WRITTEN or inside or last.get(var) == end:
                sources[var], born[var] = {var}, i
                until[var] = max(until.get(var, i), last.get(var, i))
            else:
                sources[var] = made_of
                for source in made_of:
                    until[source] = max(until[source], last.get(var, i))
    change = [0] * (end + 2)
    for var, i in born.items():
        size = bytes_of(var.aval)
        change[i] += size
        change[until[var] + 1] -= size
    held, most = 0, 0
    for i in range(end + 1):
        held += change[i]
        most = max(most, held + inner[i])
    return most


def bodies(eqn: Any) -> list[Any]:
    """Programs inside an operation."""
    held = jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda leaf: hasattr(leaf, "eqns"))
    return [getattr(value, "jaxpr", value) for value in held if hasattr(value, "eqns")]

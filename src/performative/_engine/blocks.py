"""A map over clients, repeats or settings that processes a limited number at a time."""

from collections.abc import Callable
from typing import Any

import jax
from jax.api_util import flatten_axes
from jaxtyping import PyTree


def map_in_blocks(
    function: Callable[..., Any], in_axes: PyTree, at_once: int | None, axis_size: int
) -> Callable[..., Any]:
    """jax.vmap(function, in_axes, axis_size=...), with at most `at_once` in parallel; None for all.

    `in_axes` contains only 0 and None. One at a time is a plain loop, without an axis of length 1.
    """
    alone = at_once == axis_size == 1
    if not alone and (at_once is None or at_once >= axis_size):
        return jax.vmap(function, in_axes=in_axes, axis_size=axis_size)

    def mapped(*args: PyTree) -> PyTree:
        leaves, structure = jax.tree.flatten(args)
        axes = flatten_axes("map_in_blocks", structure, in_axes)
        varying = [leaf for leaf, axis in zip(leaves, axes, strict=True) if axis is not None]

        def one(rows: list[PyTree]) -> PyTree:
            row = iter(rows)
            mine = [leaf if axis is None else next(row) for leaf, axis in zip(leaves, axes, strict=True)]
            return function(*jax.tree.unflatten(structure, mine))

        if alone:
            out = one([leaf[0] for leaf in varying])
            return jax.tree.map(lambda leaf: leaf[None], out)
        return jax.lax.map(one, varying, batch_size=None if at_once == 1 else at_once)

    return mapped

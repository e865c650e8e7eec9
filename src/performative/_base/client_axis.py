"""The client axis: which leaves of a population have one row per client, and how to select some of those rows.

A population's methods are written for ONE client. The engine passes them a slice: per-client leaves lose their
leading axis, all others are unchanged.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from performative.types import ArrayLike

Tree = TypeVar("Tree")


class TableRow(eqx.Module):
    """Client `row` of a table [N, m, ...], indexed by sample without copying the client's m samples."""

    table: Any
    row: Any

    def __getitem__(self, sample: ArrayLike) -> Array:
        return self.table[self.row, sample]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.table.shape[1:]

    @property
    def ndim(self) -> int:
        return self.table.ndim - 1

    @property
    def dtype(self) -> Any:
        return self.table.dtype


def _marks(root: Any, path: tuple[Any, ...], leaf: PyTree) -> dict[str, Any]:
    """Metadata of the per-client field on the path to a leaf with rows, {} if there is none."""
    if getattr(leaf, "ndim", 0) < 1:
        return {}
    node = root
    for step in path:
        if isinstance(step, jax.tree_util.GetAttrKey):
            if dataclasses.is_dataclass(node):
                for field in dataclasses.fields(node):
                    # False: what looks like clients further down belongs to one client (see `Pooled`).
                    if field.name == step.name and "per_client" in field.metadata:
                        return dict(field.metadata) if field.metadata["per_client"] else {}
            node = getattr(node, step.name)
        elif isinstance(step, jax.tree_util.SequenceKey):
            node = node[step.idx]
        elif isinstance(step, jax.tree_util.DictKey):
            node = node[step.key]
        else:
            break
    return {}


def client_axes(population: PyTree) -> PyTree:
    """0 for leaves with a client axis, None for the rest, in the population's own structure."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: 0 if _marks(population, path, leaf) else None, population
    )


def count_clients(population: PyTree) -> int:
    """N, from the leading axis of the per-client leaves; 1 if all numbers are shared."""
    sizes: dict[str, int] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(population):
        if _marks(population, path, leaf):
            sizes[jax.tree_util.keystr(path).lstrip(".")] = leaf.shape[0]
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise ValueError(
            f"{type(population).__name__}: all per-client arrays need one row per client, but {listed}. "
            "Give each the same leading length, or a scalar to share it."
        )
    return next(iter(sizes.values()), 1)


def split_clients(population: PyTree) -> tuple[PyTree, PyTree]:
    """Split into what differs between clients (leading axis N) and what they share; `eqx.combine` joins a row to it."""
    axes = client_axes(population)
    return eqx.partition(population, jax.tree.map(lambda axis: axis == 0, axes, is_leaf=lambda axis: axis is None))


def slice_client(population: Tree, client: Array | int | slice) -> Tree:
    """One client's slice, as a part sees it."""
    rows, shared = split_clients(population)
    return eqx.combine(jax.tree.map(lambda leaf: leaf[client], rows), shared)


def map_clients(function: Callable[..., Any], population: PyTree, clients: int, *rows: PyTree) -> Any:
    """function(one client's slice of the population, its rows ...) for each client."""
    arrays, rest = eqx.partition(population, eqx.is_array)
    lead = (client_axes(arrays), *(0 for _ in rows))
    return jax.vmap(lambda own, *mine: function(eqx.combine(own, rest), *mine), in_axes=lead, axis_size=clients)(
        arrays, *rows
    )


def take_clients(population: PyTree, ids: Int[Array, "..."]) -> tuple[PyTree, PyTree]:
    """Rows `ids` of a population (one row for a single id), and the axes to map over. Past the end, the last row."""

    def take(path: tuple[Any, ...], leaf: PyTree) -> tuple[Any, Any]:
        marks = _marks(population, path, leaf)
        if not marks:
            return leaf, None
        if marks["table"] and leaf.ndim > 1:  # one number per client is not a table: tables on disk have such leaves
            return TableRow(leaf, jnp.minimum(ids, leaf.shape[0] - 1)), TableRow(None, 0)
        return jnp.take(leaf, ids, axis=0, mode="clip"), 0

    leaves, structure = jax.tree_util.tree_flatten_with_path(population)
    taken = [take(path, leaf) for path, leaf in leaves]
    rows, axes = zip(*taken, strict=True) if taken else ((), ())
    return jax.tree.unflatten(structure, rows), jax.tree.unflatten(structure, axes)


def take_rows(memory: PyTree, ids: Int[Array, " K"]) -> PyTree:
    """Rows `ids` of per-client memory [N, ...]."""
    return jax.tree.map(lambda leaf: jnp.take(leaf, ids, axis=0, mode="clip"), memory)


def put_rows(memory: PyTree, ids: Int[Array, " K"], rows: PyTree) -> PyTree:
    """Write rows back in place; ids past the end (a cohort's padding rows) are dropped."""
    return jax.tree.map(lambda leaf, new: leaf.at[ids].set(new, mode="drop"), memory, rows)


def join_clients(populations: Sequence[Tree]) -> Tree:
    """Concatenate the clients of populations of one kind. What clients share must be the same in all."""
    first, counts = populations[0], [count_clients(one) for one in populations]
    flat: list[tuple[Any, Any]] = [jax.tree_util.tree_flatten_with_path(one) for one in populations]
    for k, (_, structure) in enumerate(flat):
        if structure != flat[0][1]:
            raise ValueError(f"that of player {k} has a different structure than that of player 0.")

    def join(path: tuple[Any, ...], leaves: list[Any]) -> Any:
        name = jax.tree_util.keystr(path).lstrip(".")
        if not _marks(first, path, np.empty(1)):
            if not all(one is leaves[0] or np.array_equal(one, leaves[0]) for one in leaves):
                raise ValueError(f"{name}, which clients share, differs.")
            return leaves[0]
        rows = [np.broadcast_to(one, (n,)) if np.ndim(one) == 0 else one for one, n in zip(leaves, counts, strict=True)]
        if len({np.shape(one)[1:] for one in rows}) > 1:
            raise ValueError(f"{name} has shapes {[np.shape(one) for one in leaves]}; give rows of the same shape.")
        return np.concatenate([np.asarray(one) for one in rows])

    pairs = [[leaf for _, leaf in leaves] for leaves, _ in flat]
    joined = [join(path, list(each)) for (path, _), *each in zip(flat[0][0], *pairs, strict=True)]
    return jax.tree.unflatten(flat[0][1], joined)

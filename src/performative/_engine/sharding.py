"""The client axis over many devices, of one process or of several (`jax.distributed`).

Clients are distributed in blocks of equal length, one per device, with their data and their memory; all else is
replicated. If N is not a multiple of the number of devices, copies of the last client pad the last blocks: they are
never sampled and have zero weight. A device then stores, and under full participation computes, at most one client more
than its share. Under full participation only sums over clients are communicated. Under partial participation the rows
of the cohort are distributed in order, whichever device has the data: the samples of each step, and the memory of the K
clients, travel between devices.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.api_util import flatten_axes
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jax.typing import DTypeLike
from jaxtyping import Array, PyTree

from performative._base.client_axis import TableRow
from performative._engine.blocks import map_in_blocks
from performative._engine.compute import Compute
from performative._engine.processes import Fetched, from_all, several
from performative.types import Cohort, Draws, State

AXIS = "clients"
_ALL = 2**31 - 1


def client_mesh() -> Mesh:
    """All devices of all processes in a row."""
    return jax.make_mesh((jax.device_count(),), (AXIS,), axis_types=(AxisType.Auto,))


def filled(rows: int, mesh: Mesh | None) -> int:
    """The number of rows, padded so that every device has the same number."""
    return rows if mesh is None else -(-rows // mesh.size) * mesh.size


def across(mesh: Mesh, axis: int | None = None) -> NamedSharding:
    """Distributed along `axis`; replicated on every device if it is None."""
    return NamedSharding(mesh, PartitionSpec() if axis is None else PartitionSpec(*(None,) * axis, AXIS))


def place(array: Any, dtype: DTypeLike | None = None, *, mesh: Mesh, axis: int | None = None) -> Array:
    """A host array on the mesh; if distributed, padded with its last entry along `axis`.

    A process reads only the rows of its own devices.
    """
    array = np.asarray(array)
    dtype = jax.dtypes.canonicalize_dtype(array.dtype if dtype is None else dtype)
    shape = list(array.shape)
    if axis is not None:
        shape[axis] = filled(array.shape[axis], mesh)

    def piece(at: Any) -> np.ndarray:
        if axis is None:
            return array.astype(dtype, copy=False)
        rows = np.arange(shape[axis])[at[axis]]
        return np.take(array, np.minimum(rows, array.shape[axis] - 1), axis=axis).astype(dtype, copy=False)

    return jax.make_array_from_callback(tuple(shape), across(mesh, axis), piece)


def everywhere(tree: PyTree, mesh: Mesh | None) -> Any:
    """Replicate arrays (and keys) on every device; unchanged without a mesh."""
    if mesh is None:
        return tree

    def move(leaf: PyTree) -> Any:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            bits = place(jax.random.key_data(leaf), mesh=mesh)
            return jax.random.wrap_key_data(bits, impl=jax.random.key_impl(leaf))
        return place(leaf, mesh=mesh)

    return jax.tree.map(move, tree)


def over_devices(function: Callable[..., Any], in_axes: PyTree, mesh: Mesh) -> Callable[..., Any]:
    """function(*args) on every device, with its own rows of arguments with axis 0 and all of the others.

    It returns rows. Nothing travels between devices. Other arrays that the function needs must be bound by an
    `eqx.Partial`: a closure cannot carry them.
    """
    held, code = eqx.partition(function, eqx.is_array)

    def mapped(*args: PyTree) -> PyTree:
        leaves, structure = jax.tree.flatten(args)
        specs = [across(mesh, axis).spec for axis in flatten_axes("over_devices", structure, in_axes)]

        def own(held: PyTree, leaves: list[PyTree]) -> PyTree:
            return eqx.combine(held, code)(*jax.tree.unflatten(structure, leaves))

        # Parts know nothing about devices, so there is nothing to check in their outputs.
        rows = across(mesh, 0).spec
        each = jax.shard_map(own, mesh=mesh, in_specs=(PartitionSpec(), specs), out_specs=rows, check_vma=False)
        return each(held, leaves)

    return mapped


def map_rows(
    function: Callable[..., Any], in_axes: PyTree, at_once: int | None, axis_size: int, mesh: Mesh | None
) -> Callable[..., Any]:
    """`map_in_blocks` over rows, which a mesh distributes over its devices; `at_once` then applies to each device.

    If a device has all that its rows read, nothing travels while they compute. For rows of a cohort that read tables of
    all clients (`TableRow`), the compiler fetches samples from wherever they are stored.
    """
    if mesh is None:
        return map_in_blocks(function, in_axes, at_once, axis_size)

    def block(function: Callable[..., Any], *args: PyTree) -> PyTree:
        return map_in_blocks(function, in_axes, at_once, axis_size // mesh.size)(*args)

    each = eqx.Partial(block, function)

    def mapped(*args: PyTree) -> PyTree:
        if not any(map(_is_table_row, jax.tree.leaves(args, is_leaf=_is_table_row))):
            return over_devices(each, in_axes, mesh)(*args)
        leaves, structure = jax.tree.flatten(args)
        axes = flatten_axes("map_rows", structure, in_axes)

        def deal(leaf: PyTree, axis: int | None) -> Any:
            return leaf if axis is None else _hold(leaf.reshape(mesh.size, -1, *leaf.shape[1:]), mesh, 0)

        dealt = [deal(leaf, axis) for leaf, axis in zip(leaves, axes, strict=True)]
        out = jax.vmap(each, in_axes=in_axes, axis_size=mesh.size)(*jax.tree.unflatten(structure, dealt))
        return jax.tree.map(lambda leaf: _hold(leaf.reshape(axis_size, *leaf.shape[2:]), mesh, 0), out)

    return mapped


def _is_table_row(node: PyTree) -> bool:
    return isinstance(node, TableRow)


def _hold(leaf: Array, mesh: Mesh, axis: int | None) -> Array:
    return jax.lax.with_sharding_constraint(leaf, across(mesh, axis))


def fill_up(cohort: Cohort, drawn: Draws | None, clients: int, mesh: Mesh) -> tuple[Cohort, Draws | None]:
    """The same cohort, padded to the same number of rows on every device. Padding ids lie past all padded rows."""
    past, size = filled(clients, mesh), cohort.ids.shape[0]
    more = filled(size, mesh) - size

    def fill(rows: Array, spare: Any) -> Array:
        return jnp.concatenate([rows, jnp.full((more, *rows.shape[1:]), spare, rows.dtype)])

    ids = fill(jnp.where(cohort.ids < clients, cohort.ids, past), past)
    active = cohort.active
    if more:
        active = fill(jnp.ones(size, bool) if active is None else active, False)
    steps = None if cohort.steps is None else fill(cohort.steps, 1)
    drawn = jax.tree.map(lambda rows: fill(rows, 0), drawn)
    age = None if cohort.age is None else fill(cohort.age, 0)
    return Cohort(ids, fill(cohort.weight, 0), active, steps, cohort.elapsed, age), drawn


def lay_out(state: State, clients: int, mesh: Mesh | None, lead: int = 0) -> State:
    """Inside a program: constrain what is stored where. `lead` axes of settings and repeats come first."""
    if mesh is None:
        return state
    axes = _axes(state, clients, mesh, lead)
    return jax.tree.map(lambda leaf, axis: _hold(leaf, mesh, None if axis < 0 else axis), state, axes)


def _axes(state: State, clients: int, mesh: Mesh, lead: int) -> Any:
    """The axis along which each array of a state is distributed, -1 for none.

    The server's memory of each client is distributed if N is a multiple of the number of devices. Another of its arrays
    may happen to have N rows: that only changes where it is stored.
    """

    def axis(path: tuple[Any, ...], leaf: PyTree) -> int:
        rows = leaf.ndim > lead + 1 and leaf.shape[lead] == clients and clients % mesh.size == 0
        return lead if path[0].name == "clients" or (path[0].name == "server" and rows) else -1

    return jax.tree_util.tree_map_with_path(axis, state)


def to_host(state: State, clients: int, mesh: Mesh | None, lead: int) -> Any:
    """The state without padding rows, to be read by NumPy. Unchanged without a mesh."""
    if mesh is None:
        return state

    def cut(path: tuple[Any, ...], leaf: Array) -> Fetched:
        shape = leaf.shape if path[0].name != "clients" else (*leaf.shape[:lead], clients, *leaf.shape[lead + 1 :])
        return Fetched(leaf, shape)

    return jax.tree_util.tree_map_with_path(cut, state)


def from_host(state: PyTree, clients: int, mesh: Mesh | None, lead: int) -> State:
    """Put what `to_host` returned back on the devices."""
    if mesh is None:
        return jax.tree.map(jnp.asarray, state)
    axes = _axes(state, clients, mesh, lead)
    return jax.tree.map(lambda leaf, axis: place(leaf, mesh=mesh, axis=None if axis < 0 else axis), state, axes)


def whole(tree: PyTree, mesh: Mesh | None) -> Any:
    """Inside a program: replicate on every device, so every process can read it."""
    return tree if mesh is None else jax.tree.map(lambda leaf: _hold(leaf, mesh, None), tree)


def describe_mesh(mesh: Mesh) -> str:
    """How a history describes the mesh."""
    processes = f" of {jax.process_count()} processes" if several(mesh) else ""
    return f"sharded over {mesh.size} device{'s' if mesh.size > 1 else ''}{processes}"


def share_work(compute: Compute, footprint: Any, asked: int | None, mesh: Mesh) -> tuple[Compute, Any]:
    """Convert the choice for all clients on one device to each device's share. A value that was `asked` for stays."""
    if footprint is None:
        return compute, None
    # Devices without their own memory share the machine's.
    own = 1 if jax.local_devices()[0].memory_stats() else jax.local_device_count()
    part = dataclasses.replace(
        footprint,
        cohort=-(-footprint.cohort // mesh.size),
        standing=-(-footprint.standing // mesh.size),
        available=footprint.available // own,
    )
    if asked is None and compute.at_once == footprint.at_once:
        compute = dataclasses.replace(compute, at_once=part.at_once)
    if several(mesh):  # free memory may differ, the program must not
        least = min(from_all(_ALL if compute.at_once is None else compute.at_once))
        compute = dataclasses.replace(compute, at_once=None if least == _ALL else least)
    return compute, part

"""Communication between the processes that share a run (`jax.distributed`)."""

import json
import zlib
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh
from jax.typing import DTypeLike
from jaxtyping import Array, PyTree

from performative._base.describe import describe
from performative._engine.checkpoint import RunFolder


def several(mesh: Mesh | None) -> bool:
    """Whether other processes take part in this run."""
    return mesh is not None and jax.process_count() > 1


def from_all(value: int) -> list[int]:
    """Gather one integer below 2^31 from each process."""
    return [int(v) for v in multihost_utils.process_allgather(np.asarray(value, np.int32))]


def agree(what: str, value: object, advice: str) -> None:
    """Raise if processes disagree: they would wait for each other forever."""
    told = from_all(zlib.crc32(json.dumps(describe(value)).encode()) >> 1)
    others = sum(other != told[jax.process_index()] for other in told)
    if others:
        raise ValueError(
            f"{what} must be the same in all {len(told)} processes; "
            f"those of process {jax.process_index()} differ from those of {others} others. {advice}"
        )


class Fetched:
    """An array of a run, cut to `shape`, fetched to the host when NumPy reads it. All processes must read it."""

    def __init__(self, leaf: Array, shape: tuple[int, ...]):
        self.leaf, self.shape, self.dtype = leaf, shape, leaf.dtype

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        leaf = self.leaf
        if not (leaf.is_fully_addressable or leaf.is_fully_replicated):
            leaf = multihost_utils.process_allgather(leaf, tiled=True)
        return np.asarray(leaf, dtype)[tuple(map(slice, self.shape))]


def save_once(
    folder: RunFolder, state: PyTree, chunks: list[dict[str, np.ndarray]], notes: dict[str, Any], mesh: Mesh | None
) -> None:
    """Write a checkpoint. With several processes the first one writes, and all wait until it is done."""
    if not several(mesh) or jax.process_index() == 0:
        folder.save(state, chunks, notes)
    else:
        for leaf in jax.tree.leaves(state):  # the writer can read what is stored here only if all processes fetch
            np.asarray(leaf)
    if several(mesh):
        multihost_utils.sync_global_devices("checkpoint")

"""Checkpoints of the state and recorded history: a kill at any moment loses no finished chunk.

A folder contains `records-NNNNNN.npz`, one file per chunk, and `state.json` + `state-NNNNNN.npz`, which record how many
of them count. Every file is written under a temporary name and renamed; the JSON file comes last, so it never names a
file that does not exist. It contains the digest of every file and of itself: altered, swapped or damaged files are
refused. Only one process at a time may use the folder. No pickle is written or read.
"""

import contextlib
import dataclasses
import io
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from performative._base.checks import check_counts, check_flags
from performative._base.describe import differences
from performative._base.files import Damaged, digest_of, only_one, write_whole
from performative.types import Unchecked

# The files of a checkpoint: nothing else in the folder is ever removed or read.
_NUMBER = r"(\d{6}|[1-9]\d{6,})"  # as f"{number:06d}" writes it
_ARRAYS = re.compile(rf"(state|records)-{_NUMBER}(-{_NUMBER})?\.npz")
_UNFINISHED = re.compile(rf"\.(state\.json|ledger\.json|{_ARRAYS.pattern})\.part")


def _write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> str:
    """Write a file of arrays and return its digest."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    content = buffer.getvalue()
    write_whole(path, content)
    return digest_of(content)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Where a run saves its state and history, for `pf.run(..., checkpoint=...)`.

    Attributes:
        folder: written between chunks; a kill at any moment loses no finished chunk
        every: rounds between checkpoints; None for 20 checkpoints over the run
        resume: continue the run in the folder, bit for bit
    """

    folder: str | os.PathLike[str]
    every: int | None = None
    resume: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.folder, (str, os.PathLike)):
            raise ValueError(f"checkpoint must be the path of a folder; got {self.folder!r}.")
        check_counts(**({} if self.every is None else {"checkpoint_every": self.every}))
        check_flags("run", resume=self.resume)


def read_checkpoint(checkpoint: Unchecked[str | os.PathLike[str] | Checkpoint | None]) -> Checkpoint | None:
    """Read the argument; a plain path is a folder."""
    return checkpoint if checkpoint is None or isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)


def on_default_device(state: PyTree) -> Any:
    return jax.tree.map(jax.numpy.asarray, state)


class RunFolder:
    """One run's folder. `identity` describes the run; a folder of another run is refused.

    Functions are compared by name, code and closure; the code that they call is not compared.
    """

    def __init__(self, folder: str | os.PathLike[str], identity: dict[str, Any], resume: bool):
        self.folder = Path(folder)
        self.identity = json.loads(json.dumps(identity))
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"checkpoint={str(self.folder)!r} is a file; pass a folder.")
        self.index = self.folder / "state.json"
        self.resume = resume

    @contextlib.contextmanager
    def held(self) -> Iterator["RunFolder"]:
        """The folder, locked for this process."""
        name = f"checkpoint={str(self.folder)!r}"
        with only_one(self.folder, f"{name}: another run is writing there; wait for it, or choose another folder."):
            yield self.opened()

    def opened(self) -> "RunFolder":
        """Check the folder, then remove the partial files of a killed run."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.index.exists() and not self.resume:
            raise ValueError(
                f"checkpoint={str(self.folder)!r} already contains a run; pass resume=True (in pf.Checkpoint) to "
                f"continue it, or choose another folder."
            )
        for left in self.folder.iterdir():
            if _UNFINISHED.fullmatch(left.name):
                left.unlink()
        return self

    def read_index(self) -> dict[str, Any] | None:
        """The contents of `state.json`; None if there is none. Raises `Damaged` if it was altered."""
        if not self.index.exists():
            return None
        try:
            index = json.loads(self.index.read_text())
            digest = index.pop("digest")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Damaged(f"{self.index} was not written by a run.") from None
        if digest != _digest_of_index(index):
            raise Damaged(f"{self.index} was altered or damaged since it was written: its digest does not match.")
        return index

    @property
    def notes(self) -> dict[str, Any]:
        """The notes of the last checkpoint; round 0 if there is none."""
        index = self.read_index()
        return {"round": 0} if index is None else index["notes"]

    def load(
        self, state: PyTree, put: Callable[[PyTree], PyTree] = on_default_device
    ) -> tuple[Any, list[dict[str, np.ndarray]], dict[str, Any]] | None:
        """State, chunks of records and notes of the last checkpoint; None if there is none.

        `state` provides structure, shapes and dtypes; `put` moves the stored arrays to the device.
        """
        index = self.read_index()
        if index is None:
            return None
        changed = differences(index["identity"], self.identity)
        if changed:
            raise ValueError(
                f"checkpoint={str(self.folder)!r} belongs to another run; these differ: {'; '.join(changed[:5])}."
            )
        leaves, structure = jax.tree.flatten(state)
        found = self._arrays(index, index["state"])
        stored = [found[f"leaf{i}"] for i in range(len(found))]
        if [(s.shape, s.dtype) for s in stored] != [(leaf.shape, leaf.dtype) for leaf in leaves]:
            raise ValueError(f"checkpoint={str(self.folder)!r} contains arrays whose shapes differ from this run's.")
        chunks = [self._arrays(index, name) for name in index["records"]]
        return put(jax.tree.unflatten(structure, stored)), chunks, index["notes"]

    def _arrays(self, index: dict[str, Any], name: str) -> dict[str, np.ndarray]:
        """The arrays of a file that the index names."""
        path = self.folder / name
        if not _ARRAYS.fullmatch(name) or not path.exists():
            raise Damaged(f"checkpoint={str(self.folder)!r}: state.json names {name!r}, which does not exist.")
        content = path.read_bytes()
        if digest_of(content) != index["digests"].get(name):
            raise Damaged(f"{path} was altered or damaged since it was written: its digest does not match.")
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            return {key: file[key] for key in file.files}

    def save(
        self,
        state: PyTree,
        chunks: list[dict[str, np.ndarray]],
        notes: dict[str, Any],
        names: list[str] | None = None,
    ) -> None:
        """Write the chunks that are not on the disk yet, then the state, then the index that names them.

        `names`: one for each chunk, where chunks are put together as the run goes on; a name always means the same.
        """
        names = [f"records-{i:06d}.npz" for i in range(len(chunks))] if names is None else names
        known = (self.read_index() or {"digests": {}})["digests"]
        digests = {}
        for name, chunk in zip(names, chunks, strict=True):
            digests[name] = known.get(name) or _write_arrays(self.folder / name, chunk)
        leaves = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
        current = f"state-{len(chunks):06d}.npz"
        digests[current] = _write_arrays(self.folder / current, leaves)
        index = {"identity": self.identity, "state": current, "records": names, "notes": notes, "digests": digests}
        write_whole(self.index, json.dumps(index | {"digest": _digest_of_index(index)}).encode())
        for old in self.folder.iterdir():
            if _ARRAYS.fullmatch(old.name) and old.name not in digests:
                old.unlink()


def _digest_of_index(index: dict[str, Any]) -> str:
    return digest_of(json.dumps(index, sort_keys=True).encode())

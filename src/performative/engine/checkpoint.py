"""Checkpoints: state and recorded history, written so that a kill at any moment loses no finished chunk.

A folder holds `records-NNNNNN.npz`, one file a chunk, and `state.json` + `state-NNNNNN.npz`, which say how many of them
count. Every file is written beside its place and renamed into it; the JSON file comes last, so it never names what is
not there. No pickle is written or read.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from performative.describe import differences
from performative.files import write_by, write_whole


def _write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    write_by(path, lambda file: np.savez(file, allow_pickle=False, **arrays))


def on_default_device(state: Any) -> Any:
    return jax.tree.map(jax.numpy.asarray, state)


class Checkpoint:
    """One run's folder. `identity` describes the run; a folder of another run is refused.

    Functions are told apart by name, code and what they hold; code that they call is not looked at.
    """

    def __init__(self, folder: str | os.PathLike[str], identity: dict[str, Any], resume: bool):
        self.folder = Path(folder)
        self.identity = json.loads(json.dumps(identity))
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"checkpoint={str(self.folder)!r} is a file; give a folder.")
        self.folder.mkdir(parents=True, exist_ok=True)
        for left in self.folder.glob(".*.part"):  # of a run that was killed while it wrote
            left.unlink()
        self.book = self.folder / "state.json"
        if self.book.exists() and not resume:
            raise ValueError(
                f"checkpoint={str(self.folder)!r} already holds a run; "
                "give resume=True to go on with it, or another folder."
            )

    @property
    def round(self) -> int:
        """The round that the last checkpoint is at; 0 where there is none."""
        return json.loads(self.book.read_text())["notes"]["round"] if self.book.exists() else 0

    def load(
        self, state: Any, put: Callable[[Any], Any] = on_default_device
    ) -> tuple[Any, list[dict[str, np.ndarray]], dict[str, Any]] | None:
        """State, chunks of records and notes of the last checkpoint; None where there is none.

        `state` is there for its structure, shapes and dtypes; `put` moves what was stored to the device.
        """
        if not self.book.exists():
            return None
        book = json.loads(self.book.read_text())
        changed = differences(book["identity"], self.identity)
        if changed:
            raise ValueError(
                f"checkpoint={str(self.folder)!r} belongs to another run; these differ: {'; '.join(changed[:5])}."
            )
        leaves, structure = jax.tree.flatten(state)
        with np.load(self.folder / book["state"], allow_pickle=False) as file:
            stored = [file[f"leaf{i}"] for i in range(len(file.files))]
        if [(s.shape, s.dtype) for s in stored] != [(leaf.shape, leaf.dtype) for leaf in leaves]:
            raise ValueError(f"checkpoint={str(self.folder)!r} holds arrays of other shapes than this run's.")
        chunks = []
        for name in book["records"]:
            with np.load(self.folder / name, allow_pickle=False) as file:
                chunks.append({key: file[key] for key in file.files})
        return put(jax.tree.unflatten(structure, stored)), chunks, book["notes"]

    def save(self, state: Any, chunks: list[dict[str, np.ndarray]], notes: dict[str, Any]) -> None:
        """Write the chunks that are not on the disk yet, then the state, then the book that names them."""
        names = [f"records-{i:06d}.npz" for i in range(len(chunks))]
        known = set(json.loads(self.book.read_text())["records"]) if self.book.exists() else set()
        for name, chunk in zip(names, chunks, strict=True):
            if name not in known:
                _write_arrays(self.folder / name, chunk)
        leaves = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
        current = f"state-{len(chunks):06d}.npz"
        _write_arrays(self.folder / current, leaves)
        book = {"identity": self.identity, "state": current, "records": names, "notes": notes}
        write_whole(self.book, json.dumps(book).encode())
        for old in self.folder.glob("state-*.npz"):
            if old.name != current:
                old.unlink()

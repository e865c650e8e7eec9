"""What a server keeps of a long run: the records of all rounds, in few files, and the last of its models."""

from typing import Any

import jax
import numpy as np

from performative._base.messages import refused
from performative._engine.assemble import Chunk
from performative.types import Theta

# Bytes that models may take on the server's disk if `keep_models` is not given, and in a history.
ROOM = 1 << 30
# The fewest and the most models that are then kept on disk.
FEWEST, MOST = 10, 1000
# This many records of one round are merged into one file, unless it would have more bytes than this.
_TOGETHER, _LONGEST = 100, 64 << 20


def models_kept(asked: int | None, theta: Theta) -> int:
    """How many of the last deployed models are kept on disk: as asked, or what fits into 1 GiB, from 10 to 1000."""
    return asked if asked is not None else max(FEWEST, min(MOST, ROOM // max(1, model_bytes(theta))))


def model_bytes(theta: Theta) -> int:
    return sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(theta))


def check_history(theta: Theta, rounds: int) -> None:
    """Refuse to record the model of every round if that would fill memory and disk."""
    if (size := rounds * model_bytes(theta)) > ROOM:
        text = (
            f"the models of {rounds} rounds take {size / 2**30:,.0f} GiB, in memory and on disk; "
            'record=pf.Record(theta="last") records only the last; deployed ones are kept in models/ (keep_models=).'
        )
        raise refused("far-too-large", text)


def put_together(chunks: list[Chunk]) -> list[Chunk]:
    """The same records; if each of the last hundred chunks contains one round, these are merged into one."""
    last = chunks[-_TOGETHER:]
    if len(last) < _TOGETHER or any(records_in(chunk) > 1 for chunk in last):
        return chunks
    if sum(array.nbytes for chunk in last for array in chunk.values()) > _LONGEST:
        return chunks
    return [*chunks[:-_TOGETHER], {name: np.concatenate([one[name] for one in last], axis=1) for name in last[0]}]


def records_in(chunk: Chunk) -> int:
    return int(chunk["sound"].shape[-1])


def file_names(chunks: list[Chunk]) -> list[str]:
    """The file of each chunk, counted from 0: records-000100-000199.npz contains the records of rounds 101 to 200."""
    names, first = [], 0
    for chunk in chunks:
        last = first + records_in(chunk) - 1
        names.append(f"records-{first:06d}.npz" if last == first else f"records-{first:06d}-{last:06d}.npz")
        first = last + 1
    return names


def check_same_records(chunks: list[Chunk], keeps_theta: bool) -> None:
    """Refuse to resume a run whose records contain models if new ones would not, or the reverse."""
    if chunks and any(name.startswith("theta/") for name in chunks[0]) != keeps_theta:
        began: Any = "all" if not keeps_theta else "last"
        raise ValueError(f'record: the run in the folder began with theta="{began}"; keep it, or start a new run.')

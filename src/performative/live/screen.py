"""The server's checks of an answer before it is used. Answers that fail are excluded, logged and counted."""

import dataclasses
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from performative.live.wire import Malformed, decode, unflatten
from performative.types import Upload

# Room for the header of a message, whose length depends on names.
_HEAD = 1 << 16
# Integers up to this limit are exact in a history's columns.
_LARGEST_COUNT = 1 << 53


class Refused(ValueError):
    """An answer that is not used. The message is the reason."""


class Stale(Refused):
    """An answer to an earlier round: the one that counts may still come."""


@dataclasses.dataclass(frozen=True)
class Screen:
    """The rules: names, shapes and types as in `like`, finite numbers, |delta| and |extra| at most `longest`.

    Nothing that a client could use to increase its weight is taken from it: its weight, its number of steps and their
    effective step size are the server's own. Losses and counts are reported by clients: methods that use them
    (`PowerOfChoice`, `AdaComm`) can be misled by a dishonest client, and `Mean` trusts every answer that passes.
    `Median`, `TrimmedMean` and `Krum` do not.
    """

    like: Upload
    longest: float
    size: int | None = None

    def __post_init__(self) -> None:
        if self.size is not None and self.size < self._honest:
            raise ValueError(f"size={self.size} bytes is less than the size of an honest answer, {self._honest}.")

    @property
    def _honest(self) -> int:
        return sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(self.like))

    @property
    def most_bytes(self) -> int:
        return 2 * self._honest + _HEAD if self.size is None else self.size

    def read(self, reply: Any, client: int, expected: dict[str, Any]) -> tuple[Upload, dict[str, Any]]:
        """The update in an answer and its metadata; raises `Refused`."""
        if not isinstance(reply, bytes):
            raise Refused("the answer does not contain bytes")
        if len(reply) > self.most_bytes:
            raise Refused(f"the answer has {len(reply)} bytes; the limit is {self.most_bytes}")
        try:
            about, arrays = decode(reply)
            told = about.get("round")
            if about.get("run") == expected["run"] and isinstance(told, int) and told < expected["round"]:
                raise Stale(f"it answers round {told}")
            stray = [name for name in arrays if not name.startswith("upload")]
            if stray:
                raise Malformed(f"{stray[0][:60]!r} is unknown")
            upload: Upload = unflatten(self.like, arrays, "upload")
        except Malformed as error:
            raise Refused(str(error)) from error
        for name, value in {**expected, "client": client}.items():
            if name != "steps" and about.get(name) != value:
                raise Refused(f"it answers another request: {name} is {str(about.get(name))[:40]!r}, not {value!r}")
        if int(upload.steps) != expected["steps"]:
            raise Refused(f"{int(upload.steps)} local steps were done; {expected['steps']} were requested")
        self._check_numbers(upload)
        if about.get("lost_memory") is True and jax.tree.leaves(upload.extra):
            # Its extra is a difference to what it lost; the server's own memory still contains the whole.
            raise Refused("it lost its memory, which the server depends on; restore its folder, or start a new run")
        return upload, about

    def _check_numbers(self, upload: Upload) -> None:
        for path, leaf in jax.tree_util.tree_leaves_with_path(upload):
            if np.issubdtype(leaf.dtype, np.number) and not np.all(np.isfinite(leaf)):
                raise Refused(f"upload{jax.tree_util.keystr(path)} is non-finite")
        for name, part in (("update", upload.delta), ("extra", upload.extra)):
            length = length_of(part)
            if not length <= self.longest:
                raise Refused(f"the {name} has norm {length:.3g}; the limit is {self.longest:.3g}")
        for name, count in upload.metrics.items():
            if np.any((count < 0) | (count > _LARGEST_COUNT)):
                raise Refused(f"the count {name!r} is negative or far too large")


def length_of(tree: PyTree) -> float:
    """|tree|, infinite if it overflows."""
    with np.errstate(over="ignore"):
        return float(np.sqrt(sum(np.sum(np.square(np.asarray(leaf, np.float64))) for leaf in jax.tree.leaves(tree))))

"""How many bytes one message of a federation may have.

Both sides know it before anything is sent: it follows from the shapes of the model, or from `size` of the federation.
What is longer is refused by the length that it claims, so that nobody can fill the other's memory.
"""

import math
import os
from typing import Any

import jax

from performative.live.federation import Federation
from performative.live.screen import Screen

# Where Flower's processes and those that they start find the limit, in bytes.
LARGEST = "PERFORMATIVE_LARGEST_MESSAGE"
# Where nobody said; and the least there is, since an app travels too (Flower takes bundles of up to 10 MB).
UNKNOWN, LEAST = 64 << 20, 16 << 20
# Beside the numbers: names, keys and shares of a secure round, and what Flower writes around them.
_AROUND = 1 << 20


class TooLong(ValueError):
    """A message above the limit. The text says the limit and the setting that raises it."""


def largest_message(federation: Federation) -> int:
    """The limit of a federation, in bytes.

        max(broadcast, answer) + 1 MiB,   at least 16 MiB

    An answer may have `size` bytes, or twice what an honest one has; where the server sees sums only, it holds eight
    bytes for each entry of the update.
    """
    with federation.precision():
        ready = federation.ready
        broadcast, upload = _bytes(ready.asked_like[1]), ready.upload_like
        answer = Screen(upload, math.inf, federation.size).most_bytes
        if ready.secure is not None:
            answer = max(answer, 8 * sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(upload.delta)))
    return max(LEAST, max(broadcast, answer) + _AROUND)


def _bytes(tree: Any) -> int:
    arrays = [leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "dtype")]
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in arrays)


def limit_here() -> int:
    """The limit that this process was told."""
    told = os.environ.get(LARGEST, "")
    return int(told) if told.isdigit() and int(told) > 0 else UNKNOWN


def tell_limit(what: str, length: int | None, limit: int) -> str:
    """What to say of a message that is refused."""
    count = "an unknown number of" if length is None else str(length)
    return (
        f"{what} has {count} bytes, and this federation takes at most {limit}; `size` under [federation], in bytes, "
        "raises the limit, then `performative federation down` and `up`, on members `join`"
    )

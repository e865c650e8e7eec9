"""How many bytes one message of a federation may have.

Both sides know this before anything is sent: it follows from the shapes of the model, or from `size` of the federation.
A longer message is refused because of its declared length, so that neither side can exhaust the other's memory.
"""

import math
import os
from typing import Any

import jax

from performative.live.federation import Federation
from performative.live.screen import Screen

# The environment variable that tells Flower's processes, and those that they start, the limit in bytes.
LARGEST = "PERFORMATIVE_LARGEST_MESSAGE"
# The limit if none was set; and the smallest limit, since apps are sent too (Flower accepts bundles of up to 10 MB).
UNKNOWN, LEAST = 64 << 20, 16 << 20
# Besides the numbers: names, keys and shares of a secure round, and what Flower adds to them.
_AROUND = 1 << 20


class TooLong(ValueError):
    """A message above the limit. The text states the limit and the setting that raises it."""


def largest_message(federation: Federation) -> int:
    """The limit of a federation, in bytes.

        max(broadcast, answer) + 1 MiB,   at least 16 MiB

    An answer may have `size` bytes, or twice what an honest one has; if the server sees only sums, eight bytes for each
    entry of the update if that is more.
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
    """The limit of this process."""
    told = os.environ.get(LARGEST, "")
    return int(told) if told.isdigit() and int(told) > 0 else UNKNOWN


def tell_limit(what: str, length: int | None, limit: int) -> str:
    """The error text for a message that is refused."""
    count = "an unknown number of" if length is None else str(length)
    return (
        f"{what} has {count} bytes, and this federation accepts at most {limit}; to raise the limit, set `size` under "
        "[federation], in bytes, then run `performative federation down` and `up`, and `join` on members' hosts"
    )

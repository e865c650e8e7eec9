"""Updates of which only the largest entries are sent."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from performative._base.checks import check_flags, check_number
from performative._base.noise import size_of
from performative.channels.base import AbstractChannel
from performative.types import Broadcast, Noise, Numbers, Theta, Unchecked, as_numbers, is_concrete


def owed(delta: Theta, memory: Theta | None) -> Theta:
    """The update plus the residual of previous rounds; only the update if nothing is remembered."""
    return delta if memory is None else jax.tree.map(jnp.add, delta, memory)


def settle(wanted: Theta, sent: Theta, delta: Theta, memory: Theta | None) -> tuple[Theta, Theta | None]:
    """What is sent, and the residual for the next round.

    A non-finite update is sent unchanged, for the server to reject and count; none of it is kept.
    """
    finite = jnp.all(jnp.isfinite(ravel_pytree(wanted)[0]))
    message = jax.tree.map(lambda s, d: jnp.where(finite, s, d), sent, delta)
    if memory is None:
        return message, None
    left = jax.tree.map(lambda w, s, old: jnp.where(finite, w - s, old), wanted, sent, memory)
    return message, left


def start_memory(theta: Theta, feedback: bool) -> Theta | None:
    return jax.tree.map(jnp.zeros_like, theta) if feedback else None


def read_entries(owner: str, k: Unchecked[float]) -> Numbers:
    """Read a whole number of entries, or a fraction of them; raises otherwise."""
    check_number(owner, k=k)
    whole = isinstance(k, (int, np.integer)) and not isinstance(k, bool) and k >= 1
    if is_concrete(k) and not (whole or 0 < k < 1):
        raise ValueError(
            f"{owner}: k must be a whole number of entries >= 1, or a fraction above 0 and below 1; got {k!r}."
        )
    return as_numbers(k)


def count_entries(k: Numbers, delta: PyTree) -> Array:
    """How many entries of such an update are sent: k, or that fraction of them, rounded up."""
    size, k = size_of(delta), jnp.asarray(k)
    # 0.1 * 30 is 3.0000000000000004 in floating point, which must not become 4 entries.
    part = jnp.ceil(k * size * (1 - 4 * jnp.finfo(k.dtype).eps))
    return jnp.clip(jnp.where(k < 1, part, jnp.floor(k)), 1, size).astype(jnp.int32)


def count_bits(entries: Array, delta: PyTree) -> Array:
    """Bits of this many values and their indices, at ceil(log2 d) bits per index."""
    width = 8 * jnp.result_type(*jax.tree.leaves(delta)).itemsize
    place = math.ceil(math.log2(max(size_of(delta), 2)))
    # Floating point: a large model has more bits than a 32-bit integer can count.
    return entries.astype(jnp.result_type(float)) * (width + place)


class Sparse(AbstractChannel[Theta | None]):
    """Send the k entries of largest magnitude, over all leaves; the rest is added to the next update.

        sent = top_k(delta + e),      e <- delta + e - sent

    Args:
        k: a whole number of entries, or a fraction below 1 of all of them (rounded up, at least one). If it exceeds the
            size of the model, everything is sent. Ties go to the first in the model's order.
        feedback: False forgets what is not sent. Training then generally converges elsewhere: entries that always stay
            small never move.

    A client keeps one update, `e`, which becomes stale while the client is absent. Stich et al. 2018. `bits_sent`
    counts k values and their indices, at ceil(log2 d) bits per index.
    """

    references = ("stich2018sparsified",)
    ignores_data = True

    k: Numbers
    feedback: bool = eqx.field(static=True)

    def __init__(self, k: Unchecked[float], feedback: bool = True):
        self.k, self.feedback = read_entries("Sparse", k), feedback

    def __check_init__(self) -> None:
        check_flags("Sparse", feedback=self.feedback)

    def init(self, theta: Theta) -> Theta | None:
        return start_memory(theta, self.feedback)

    def entries(self, delta: PyTree) -> Array:
        """How many entries of such an update are sent."""
        return count_entries(self.k, delta)

    def send(
        self, noise: Noise, delta: Theta, broadcast: Broadcast, memory: Theta | None
    ) -> tuple[Theta, Theta | None]:
        wanted = owed(delta, memory)
        flat, unravel = ravel_pytree(wanted)
        order = jnp.argsort(-jnp.abs(flat), stable=True)
        kept = jnp.zeros(flat.shape, bool).at[order].set(jnp.arange(flat.size, dtype=jnp.int32) < self.entries(delta))
        return settle(wanted, unravel(jnp.where(kept, flat, 0)), delta, memory)

    def totals(self, delta: Theta) -> dict[str, Array]:
        return {"bits_sent": count_bits(self.entries(delta), delta)}

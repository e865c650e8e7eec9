"""Updates of which a random subset of entries is sent."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PRNGKeyArray, PyTree

from performative._base.checks import check_flags
from performative._base.noise import size_of
from performative._base.sampling import ways
from performative.channels.base import AbstractChannel
from performative.channels.sparse import count_bits, count_entries, read_entries, settle
from performative.types import Broadcast, Noise, Numbers, Theta, Unchecked, is_concrete

# Maximum number of sets of entries that `quadrature` enumerates.
_MOST_SETS = 20_000


class RandomK(AbstractChannel[None]):
    """k of the d entries, over all leaves: every set equally likely, drawn independently by each client in each round.

        sent = (d / k) delta  on the set,  0 elsewhere;      E sent = delta,   E|sent - delta|^2 = (d / k - 1) |delta|^2

    Args:
        k: a whole number of entries, or a fraction below 1 of all of them (rounded up, at least one). If it exceeds the
            size of the model, everything is sent.
        scale: False sends the entries unscaled: in expectation (k / d) delta, a shorter step in the same direction

    Nothing is remembered: unlike with `Sparse`, an entry that is not sent is lost, and compensated only in expectation.
    `bits_sent` counts k values and their indices, as `Sparse` does. Konecny et al. 2016, Section 3 (subsampling); Stich
    et al. 2018.
    """

    references = ("konecny2016federated", "stich2018sparsified")
    ignores_data = True

    k: Numbers
    scale: bool = eqx.field(static=True)

    def __init__(self, k: Unchecked[float], scale: bool = True):
        self.k, self.scale = read_entries("RandomK", k), scale

    def __check_init__(self) -> None:
        check_flags("RandomK", scale=self.scale)

    def entries(self, delta: PyTree) -> Array:
        """How many entries of such an update are sent."""
        return count_entries(self.k, delta)

    def draw(self, key: PRNGKeyArray, theta: Theta) -> Noise:
        """The place of each entry in a random order; the first k are sent."""
        return jax.random.permutation(key, jnp.arange(size_of(theta), dtype=jnp.int32))

    def quadrature(self, theta: Theta) -> tuple[Noise, Array] | None:
        """Every set once, for any function of it; None above 20,000 sets."""
        if not is_concrete(self.k):
            return None
        with jax.ensure_compile_time_eval():
            size, k = size_of(theta), int(self.entries(theta))
        if ways(size, k) > _MOST_SETS:
            return None
        sets = np.asarray(list(itertools.combinations(range(size), k)))
        left_out = np.ones((len(sets), size), bool)
        np.put_along_axis(left_out, sets, False, axis=1)
        order = np.argsort(left_out, axis=1, kind="stable")
        return jnp.asarray(np.argsort(order, axis=1), jnp.int32), jnp.full((len(sets),), 1.0 / len(sets))

    def send(self, noise: Noise, delta: Theta, broadcast: Broadcast, memory: None) -> tuple[Theta, None]:
        flat, unravel = ravel_pytree(delta)
        entries = self.entries(delta)
        factor = flat.size / entries.astype(flat.dtype) if self.scale else jnp.ones((), flat.dtype)
        message, _ = settle(delta, unravel(jnp.where(noise < entries, flat * factor, 0)), delta, None)
        return message, memory

    def totals(self, delta: Theta) -> dict[str, Array]:
        return {"bits_sent": count_bits(self.entries(delta), delta)}

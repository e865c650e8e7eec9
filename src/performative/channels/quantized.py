"""Updates in few bits."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PRNGKeyArray

from performative._base.checks import check_flags, check_number
from performative._base.noise import size_of
from performative.channels.base import AbstractChannel
from performative.channels.sparse import owed, settle, start_memory
from performative.types import Broadcast, Noise, Numbers, Theta, is_concrete, number

_MOST = 16


class Quantized(AbstractChannel[Theta | None]):
    """Round each entry stochastically to one of 2^bits - 1 levels between -max and max.

        Q(v) = s (floor(v/s) + B),   B ~ Bernoulli(v/s - floor(v/s)),   s = max_j |v_j| / L,   L = 2^(bits-1) - 1
        sent = Q(delta + e),      e <- delta + e - sent

    E[Q(v)] = v, and no entry is off by more than s. The bits include the sign.

    Args:
        feedback: False sends Q(delta), without bias and without memory. With feedback the residual never exceeds max
            |delta| / (L - 1) of the rounds so far, for any model: |e| <= s and s L <= max |delta| + max |e|. That
            requires L > 1, so bits >= 3.

    `bits_sent` counts the entries and one number for the scale. Alistarh et al. 2017 (scaled by the largest entry
    instead of the norm); Karimireddy et al. 2019 for the feedback.
    """

    references = ("alistarh2017qsgd",)
    ignores_data = True

    bits: Numbers = number()
    feedback: bool = eqx.field(static=True, default=True)

    @classmethod
    def more_references(cls, settings: Mapping[str, Any]) -> tuple[str, ...]:
        return ("karimireddy2019error",) if settings.get("feedback") else ()

    def __check_init__(self) -> None:
        check_number("Quantized", bits=self.bits)
        check_flags("Quantized", feedback=self.feedback)
        if not is_concrete(self.bits):
            return
        bits: Any = np.asarray(self.bits)
        if not (bits == np.round(bits) and 2 <= bits <= _MOST):
            raise ValueError(f"Quantized: bits must be a whole number from 2 to {_MOST}; got {self.bits}.")
        if self.feedback and bits < 3:
            raise ValueError(
                "Quantized(bits=2) has one level per sign, and the residual can grow without bound; use bits >= 3, "
                "or feedback=False."
            )

    def init(self, theta: Theta) -> Theta | None:
        return start_memory(theta, self.feedback)

    def draw(self, key: PRNGKeyArray, theta: Theta) -> Noise:
        return jax.random.uniform(key, (size_of(theta),), jnp.result_type(*jax.tree.leaves(theta)))

    def send(
        self, noise: Noise, delta: Theta, broadcast: Broadcast, memory: Theta | None
    ) -> tuple[Theta, Theta | None]:
        wanted = owed(delta, memory)
        flat, unravel = ravel_pytree(wanted)
        levels = jnp.round(jnp.exp2(jnp.asarray(self.bits) - 1)).astype(flat.dtype) - 1
        step = jnp.max(jnp.abs(flat)) / levels
        place = flat / jnp.where(step > 0, step, 1)
        below = jnp.floor(place)
        # The fraction is exact; place + noise would round it away with many levels.
        up = noise < place - below
        rounded = jnp.clip(below + up.astype(flat.dtype), -levels, levels) * step
        return settle(wanted, unravel(rounded), delta, memory)

    def totals(self, delta: Theta) -> dict[str, Array]:
        dtype = jnp.result_type(float)
        width = 8 * jnp.result_type(*jax.tree.leaves(delta)).itemsize
        return {"bits_sent": size_of(delta) * jnp.asarray(self.bits).astype(dtype) + width}

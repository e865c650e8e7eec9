"""How a client learns the reaction of its own data: a window of past models and of what the data then were."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class Window(eqx.Module):
    """The last H deployed models and the f-hat fitted under each: a ring, and the client's own count.

    A slot that was never written holds what the present would write, hence zero columns in both differences. Those are
    exact for the pseudo-inverse: pinv([A 0]) = [pinv(A); 0].
    """

    models: Float[Array, "H d"]
    parameters: Float[Array, "H m"]
    count: Int[Array, ""]
    last: Int[Array, ""]  # clock of the newest entry

    @staticmethod
    def empty(length: int, model: Array, parameters: Any) -> "Window":
        zero = jnp.zeros((), jnp.int32)
        return Window(
            jnp.zeros((length, model.shape[0]), model.dtype),
            jnp.zeros((length, parameters.shape[0]), parameters.dtype),
            zero,
            zero,
        )

    def forget_if(self, stale: Bool[Array, ""]) -> "Window":
        """An empty window where `stale`, else this one."""
        return eqx.tree_at(lambda w: w.count, self, jnp.where(stale, 0, self.count))

    def differences(self, model: Array, parameters: Array) -> tuple[Float[Array, "H d"], Float[Array, "H m"]]:
        """Rows theta^(t-h) - theta^t and f^(t-h) - f^t (Eq. 6, transposed); zeros where there is no entry."""
        filled = (jnp.arange(len(self.models), dtype=jnp.int32) < self.count)[:, None]
        return jnp.where(filled, self.models - model, 0), jnp.where(filled, self.parameters - parameters, 0)

    def write(self, model: Array, parameters: Array, clock: Int[Array, ""]) -> "Window":
        """The window with one more entry in place of the oldest."""
        length = len(self.models)
        # By selection: mapped over clients, a write at an index is a scatter, which takes longer than all the rest.
        oldest = (jnp.arange(length, dtype=jnp.int32) == self.count % length)[:, None]
        return Window(
            jnp.where(oldest, model, self.models),
            jnp.where(oldest, parameters, self.parameters),
            self.count + 1,
            clock,
        )

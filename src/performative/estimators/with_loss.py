"""Clients that report their loss."""

from typing import Generic

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from performative.estimators.base import AbstractEstimator, AbstractWrapper, check_inner, inner_quadrature
from performative.populations.base import AbstractPopulation
from performative.types import Batch, Estimate, Local, Loss, Memory, Noise, Theta, Upload, masked_mean


class Heard(eqx.Module, Generic[Memory]):
    """The loss of the round's first batch, and `inner`'s memory."""

    loss: Float[Array, ""]
    inner: Memory


class WithLoss(AbstractWrapper[Heard[Memory]]):
    """Send F_i, the mean loss of the round's first batch at the server's model, alongside the update.

    Servers that weight clients by their losses need it: `QFair` and `Agnostic`. The direction is `inner`'s. F_i
    bypasses the channel, so no noise protects it.

    Example:

        import performative as pf

        print(pf.estimators.WithLoss(pf.estimators.Minibatch()))
    """

    references = ()
    quadrature = inner_quadrature

    inner: AbstractEstimator[Memory]

    def __check_init__(self) -> None:
        check_inner(self)

    def init(self, theta: Theta, population: AbstractPopulation, loss: Loss) -> Heard[Memory]:
        zero = jnp.zeros((), jnp.result_type(*jax.tree.leaves(theta)))
        return Heard(zero, self.inner.init(theta, population, loss))

    def estimate(
        self, noise: Noise, theta: Theta, batch: Batch, local: Local, memory: Heard[Memory]
    ) -> Estimate[Heard[Memory]]:
        out = self.inner.estimate(noise, theta, batch, local, memory.inner)
        each = jax.vmap(local.loss, in_axes=(None, 0))(theta, batch.z)
        now = masked_mean(each, batch.mask).astype(memory.loss.dtype)
        kept = jnp.where(local.clock == local.broadcast.clock, now, memory.loss)
        return Estimate(out.direction, Heard(kept, out.memory), out.metrics, out.facts)

    def finish(self, upload: Upload, local: Local, memory: Heard[Memory]) -> tuple[dict[str, PyTree], Heard[Memory]]:
        extra, inside = self.inner.finish(upload, local, memory.inner)
        return {**extra, "loss": memory.loss}, Heard(memory.loss, inside)

    def review(self, memory: Heard[Memory]) -> list[str]:
        return self.inner.review(memory.inner)

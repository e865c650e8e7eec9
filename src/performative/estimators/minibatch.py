"""The plain stochastic gradient."""

import jax
import jax.numpy as jnp

from performative._base.noise import draws_nothing
from performative.estimators.base import AbstractEstimator
from performative.types import Batch, Estimate, Local, Loss, Noise, Theta, masked_mean


def count_samples(batch: Batch) -> jax.Array | int:
    """How many rows of a batch are real; a plain int if known in advance."""
    if batch.mask is None:
        return batch.rows
    return jnp.sum(batch.mask, dtype=jnp.int32)


def batch_gradient(loss: Loss, theta: Theta, batch: Batch) -> Theta:
    """The gradient of the mean loss over the unmasked rows; masked rows may contain anything, even NaN."""
    mask, z = batch.mask, batch.z
    if mask is not None:
        # Masked rows are replaced by an unmasked one: 0 times a NaN derivative would be NaN.
        some = jnp.argmax(mask)

        def fill(rows: jax.Array) -> jax.Array:
            return jnp.where(mask.reshape(-1, *(1,) * (rows.ndim - 1)), rows, rows[some])

        z = jax.tree.map(fill, z)
    gradient = jax.grad(lambda model: masked_mean(jax.vmap(loss, in_axes=(None, 0))(model, z), mask))(theta)
    if mask is None:
        return gradient
    return jax.tree.map(lambda leaf: jnp.where(jnp.any(mask), leaf, 0), gradient)


class Minibatch(AbstractEstimator[None]):
    """v = mean over the batch of grad l(theta; z), z drawn from the current data.

    It ignores how the data move with theta, so its root is the stable point, not the optimal one.
    """

    references = ()
    is_plain = True
    sends_update_only = True
    quadrature = draws_nothing

    def estimate(self, noise: Noise, theta: Theta, batch: Batch, local: Local, memory: None) -> Estimate[None]:
        return Estimate(batch_gradient(local.loss, theta, batch), memory, {"samples": count_samples(batch)})

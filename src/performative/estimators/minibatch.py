"""The plain stochastic gradient."""

import jax
import jax.numpy as jnp

from performative.estimators.base import AbstractEstimator
from performative.types import Batch, Estimate, Local, Memory, Noise, Theta, masked_mean


def count_samples(batch: Batch) -> jax.Array | int:
    """How many rows of a batch are real; a plain number where that is known ahead."""
    if batch.mask is None:
        return batch.rows
    return jnp.sum(batch.mask, dtype=jnp.int32)


class Minibatch(AbstractEstimator):
    """v = mean over the batch of grad l(theta; z), z drawn from the data as they are.

    It leaves out how the data move with theta, so its root is the stable point, not the optimal one.
    """

    def estimate(self, noise: Noise, theta: Theta, batch: Batch, local: Local, memory: Memory) -> Estimate:
        gradients = jax.vmap(jax.grad(local.loss), in_axes=(None, 0))(theta, batch.z)
        return Estimate(masked_mean(gradients, batch.mask), memory, {"samples": count_samples(batch)})

"""A gradient step that never goes below a known lower bound of the loss."""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from performative._base.checks import check_number
from performative._base.noise import draws_nothing
from performative.estimators.base import AbstractEstimator
from performative.estimators.minibatch import count_samples
from performative.types import Batch, Estimate, Local, Noise, Numbers, Theta, masked_mean, number, squared_norm


class ClippedModel(AbstractEstimator[None]):
    """v = min(1, (l - lower) / (eta |g|^2)) g,      l and g the batch's mean loss and mean gradient

    The proximal step on the clipped linear model max(l + <g, theta' - theta>, lower). The step is shortened where the
    loss is near its lower bound, so it converges to the stable point if the noise vanishes there, and elsewhere if not.
    Drusvyatskiy and Xiao 2023; the baseline of Li, Yemini and Wai 2024, Remark 2.4. It gives no privacy.
    """

    references = ("drusvyatskiy2023stochastic",)
    sends_update_only = True
    quadrature = draws_nothing

    lower: Numbers = number(default=0.0)

    def __check_init__(self) -> None:
        check_number("ClippedModel", lower=self.lower)

    def estimate(self, noise: Noise, theta: Theta, batch: Batch, local: Local, memory: None) -> Estimate[None]:
        losses, gradients = jax.vmap(jax.value_and_grad(local.loss), in_axes=(None, 0))(theta, batch.z)
        loss, gradient = masked_mean(losses, batch.mask), masked_mean(gradients, batch.mask)
        room = jnp.maximum(loss - jnp.asarray(self.lower, loss.dtype), 0)
        length = local.rate.astype(loss.dtype) * squared_norm(gradient).astype(loss.dtype)
        share = jnp.where(length > room, room / jnp.where(length > 0, length, 1), 1)

        def shorten(leaf: Array) -> Array:
            return share.astype(leaf.dtype) * leaf

        return Estimate(jax.tree.map(shorten, gradient), memory, {"samples": count_samples(batch)})

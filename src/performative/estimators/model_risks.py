"""One batch is informative about all models: the loss of each on it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from performative._base.checks import check_finite
from performative._base.noise import draws_nothing
from performative.estimators.base import AbstractEstimator
from performative.estimators.minibatch import count_samples
from performative.populations.base import AbstractPopulation
from performative.types import Batch, Estimate, Local, Loss, Noise, Numbers, Theta, Upload, masked_mean, number


class Losses(eqx.Module):
    """The sum of each model's losses over the steps of a round, and the number of steps."""

    total: Float[Array, " G"]
    steps: Int[Array, ""]


class ModelRisks(AbstractEstimator[Losses]):
    """Do not move; report DPR_i(deployed, theta_g) to the server, each listed model's mean loss on the current data.

    For `ConfidenceBounds`. The losses bypass the channel, so no noise protects them.

    Args:
        models: theta_1 .. theta_G, [G, ...]

    Example:

        import performative as pf

        print(pf.estimators.ModelRisks(models=[0.0, 0.5, 1.0]))
    """

    references = ("jagadeesan2022regret",)
    quadrature = draws_nothing

    models: Numbers = number()

    def __check_init__(self) -> None:
        check_models("ModelRisks", self.models)

    def init(self, theta: Theta, population: AbstractPopulation, loss: Loss) -> Losses:
        leaves = jax.tree.leaves(theta)
        if len(leaves) != 1 or leaves[0].shape != np.shape(self.models)[1:]:
            raise ValueError(
                f"ModelRisks: models must be [G, ...] with a model in each row; got shape {np.shape(self.models)} for "
                f"a model of shape {[leaf.shape for leaf in leaves]}."
            )
        return Losses(jnp.zeros(np.shape(self.models)[0], leaves[0].dtype), jnp.zeros((), jnp.int32))

    def estimate(self, noise: Noise, theta: Theta, batch: Batch, local: Local, memory: Losses) -> Estimate[Losses]:
        back = jax.tree.structure(theta)

        def risk(model: Array) -> Array:
            each = jax.vmap(local.loss, in_axes=(None, 0))(jax.tree.unflatten(back, [model]), batch.z)
            return masked_mean(each, batch.mask)

        now = jax.lax.map(risk, jnp.asarray(self.models, jax.tree.leaves(theta)[0].dtype))
        begins = local.clock == local.broadcast.clock
        total = jnp.where(begins, 0, memory.total) + now.astype(memory.total.dtype)
        after = Losses(total, jnp.where(begins, 0, memory.steps) + 1)
        return Estimate(jax.tree.map(jnp.zeros_like, theta), after, {"samples": count_samples(batch)})

    def finish(self, upload: Upload, local: Local, memory: Losses) -> tuple[dict[str, PyTree], Losses]:
        return {"risks": memory.total / jnp.maximum(memory.steps, 1).astype(memory.total.dtype)}, memory


def check_models(owner: str, models: Numbers) -> None:
    """Raise unless `models` is a list of models."""
    check_finite(owner, models=models)
    if np.ndim(models) < 1 or np.shape(models)[0] < 1:
        raise ValueError(f"{owner}: models must be a list of models, [G, ...]; got shape {np.shape(models)}.")

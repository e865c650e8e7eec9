"""Gradients of the performative risk from losses alone, observed under deployed perturbations."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from performative._base.noise import draws_nothing
from performative.estimators.base import AbstractEstimator
from performative.estimators.minibatch import count_samples
from performative.populations.base import AbstractPopulation
from performative.types import Batch, Estimate, Local, Loss, Noise, Theta, masked_mean, whole


class Seen(eqx.Module):
    """The last deployed model, the sum of the losses under it, the number of steps, and the round."""

    model: Float[Array, " d"]
    loss: Float[Array, ""]
    steps: Int[Array, ""]
    round: Int[Array, ""]


class ZerothOrder(AbstractEstimator[Seen | None]):
    """A direction from the losses of deployed models, whatever the reaction of the data.

        two points:  v = d (L(theta+) - L(theta-)) s / |s|^2,     s = theta+ - theta-,    in every second round
        one point:   v = d L(theta+) s / |s|^2,                   s = theta+ - theta,     in every round

    L is the mean loss of the batch at the model its people saw: the performative risk. `pf.Explore` deploys theta+- =
    theta +- radius u, u on the unit sphere; then v is unbiased at any radius if the performative risk is quadratic, and
    otherwise for the risk averaged over a ball of that radius. A round is a deployment, and counts as one. With one
    point the variance of v is of order (d L / radius)^2, however large the batch. A client that was absent when the
    first of two models was deployed contributes nothing under the second. Flaxman, Kalai and McMahan 2005; Agarwal,
    Dekel and Xiao 2010; in performative prediction Miller et al. 2021.

    Example:

        import performative as pf

        print(pf.estimators.ZerothOrder(points=2))
    """

    learns_reaction = True
    needs_exploration = True
    sends_update_only = True
    references = ("flaxman2005online", "agarwal2010optimal", "miller2021outside")
    quadrature = draws_nothing

    points: int = whole(default=2)

    def __check_init__(self) -> None:
        if isinstance(self.points, bool) or not isinstance(self.points, int) or self.points not in (1, 2):
            raise ValueError(f"ZerothOrder: points must be 1 or 2; got {self.points!r}.")

    def init(self, theta: Theta, population: AbstractPopulation, loss: Loss) -> Seen | None:
        if self.points == 1:
            return None
        flat = jnp.zeros_like(ravel_pytree(theta)[0])
        return Seen(flat, jnp.zeros((), flat.dtype), jnp.zeros((), jnp.int32), jnp.asarray(-2, jnp.int32))

    def estimate(
        self, noise: Noise, theta: Theta, batch: Batch, local: Local, memory: Seen | None
    ) -> Estimate[Seen | None]:
        here, back = ravel_pytree(local.deployed)
        each = jax.vmap(local.loss, in_axes=(None, 0))(local.deployed, batch.z)
        loss = masked_mean(each, batch.mask).astype(here.dtype)
        counts = {"samples": count_samples(batch)}
        if memory is None:
            return Estimate(back(_along(here - ravel_pytree(local.broadcast.theta)[0], loss)), None, counts)
        round = local.broadcast.round
        first = round % 2 == 0
        begins = first & (memory.round != round)
        shown = Seen(
            here, jnp.where(begins, 0, memory.loss) + loss, jnp.where(begins, 0, memory.steps) + 1,
            round.astype(jnp.int32),
        )  # fmt: skip
        before = memory.loss / jnp.maximum(memory.steps, 1).astype(loss.dtype)
        told = jnp.where(~first & (memory.round == round - 1), before - loss, 0)
        after = jax.tree.map(lambda new, old: jnp.where(first, new, old), shown, memory)
        return Estimate(back(_along(memory.model - here, told)), after, counts)


def _along(s: Float[Array, " d"], rise: Float[Array, ""]) -> Float[Array, " d"]:
    """d rise s / |s|^2; 0 if s is 0."""
    length = jnp.sum(jnp.square(s))
    return len(s) * rise * jnp.where(length > 0, s / jnp.where(length > 0, length, 1), 0)

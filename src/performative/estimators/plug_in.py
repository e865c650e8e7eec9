"""Learn from a few deployments how the data follow the model, then minimize the predicted risk."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from performative._base.checks import check_counts
from performative._base.noise import draws_nothing
from performative._base.reaction import Moments
from performative.batches import AbstractBatch
from performative.estimators.base import AbstractEstimator, Problem
from performative.estimators.minibatch import batch_gradient, count_samples
from performative.populations.base import AbstractPopulation, collect
from performative.types import Batch, Estimate, Local, Loss, Noise, Sample, Scene, Theta, masked_mean, whole


class Fit(eqx.Module):
    """Means of features and samples over deployments, and their central moments."""

    count: Int[Array, ""]
    features: Float[Array, " p"]
    level: Float[Array, " m"]
    moments: Moments

    def write(self, features: Float[Array, " p"], level: Float[Array, " m"]) -> "Fit":
        """Add one more batch, with the same weight as each previous one."""
        share = 1 / (self.count + 1).astype(level.dtype)
        apart, change = features - self.features, level - self.level

        def mix(before: Array, now: Array) -> Array:
            return (1 - share) * (before + share * now)

        gram, cross = (
            mix(self.moments.gram, jnp.outer(apart, apart)),
            mix(self.moments.cross, jnp.outer(change, apart)),
        )
        return Fit(self.count + 1, self.features + share * apart, self.level + share * change, Moments(gram, cross))


class PlugIn(AbstractEstimator[Fit]):
    """Fit z = a + B phi(theta) + noise to the first deployments, then descend on the predicted risk.

        v = 0                                                                   in the first `deployments` rounds
        v = d/dtheta mean_j l(theta; z_j + B (phi(theta) - phi(deployed)))      from then on

    B is the client's least-squares fit over deployed models; new samples are moved to where the fit predicts them.
    Without noise it is exact for a linear reaction after d + 1 deployments that span the space, such as those of
    `pf.Explore(radius, pairs=False, directions="axes", rounds=d + 1)`; no further exploration is needed. It converges
    to the optimal point of the fitted reaction, which is not the true one if phi is misspecified: the cost of using a
    model, compared with a model-free search (`ZerothOrder`). Lin and Zrnic 2024.

    Args:
        deployments: rounds used for the fit
        features: phi, from a model to a vector; None for its entries themselves. Drop or transform some to study a
            misspecified reaction

    Example:

        import performative as pf

        print(pf.estimators.PlugIn(deployments=3))
    """

    learns_reaction = True
    needs_exploration = True
    sends_update_only = True
    references = ("lin2024plugin",)
    quadrature = draws_nothing

    deployments: int = whole()
    features: Callable[[Theta], Array] | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_counts(**{"PlugIn: deployments": self.deployments})
        if self.features is not None and not callable(self.features):
            raise ValueError(f"PlugIn: features must be a function of the model, or None; got {self.features!r}.")

    def check(self, problem: Problem, theta: Theta, batch: AbstractBatch) -> None:
        p = jax.eval_shape(self._features, theta).size
        if self.deployments < p + 1:
            raise ValueError(
                f"PlugIn(deployments={self.deployments}) cannot fit a level and {p} slopes; use {p + 1} or more."
            )

    def init(self, theta: Theta, population: AbstractPopulation, loss: Loss) -> Fit:
        def one() -> tuple[Array, Array]:
            noise = population.draw(jax.random.key(0), (1,), theta)
            batch = collect(population, noise, None, population.init(Scene(theta, loss)), theta)
            return self._features(theta), _level(batch)

        phi, level = (jnp.zeros(like.shape, like.dtype) for like in jax.eval_shape(one))
        moments = Moments(jnp.zeros((phi.size, phi.size), phi.dtype), jnp.zeros((level.size, phi.size), level.dtype))
        return Fit(jnp.zeros((), jnp.int32), phi, level, moments)

    def estimate(self, noise: Noise, theta: Theta, batch: Batch, local: Local, memory: Fit) -> Estimate[Fit]:
        learning = local.broadcast.round < self.deployments
        here = self._features(local.deployed)
        written = memory.write(here, _level(batch))
        fit = jax.tree.map(lambda new, old: jnp.where(learning, new, old), written, memory)
        slope, _ = fit.moments.jacobian(0.0)

        def predicted(model: Theta, z: Sample) -> Array:
            return local.loss(model, _moved(z, jnp.matmul(slope, self._features(model) - here, precision="highest")))

        direction = batch_gradient(predicted, theta, batch)
        direction = jax.tree.map(lambda leaf: jnp.where(learning, 0, leaf), direction)
        return Estimate(direction, fit, {"samples": count_samples(batch)})

    def _features(self, theta: Theta) -> Float[Array, " p"]:
        return ravel_pytree(theta)[0] if self.features is None else jnp.ravel(self.features(theta))


def _numbers(z: Sample) -> tuple[Array, Callable[[Array], Sample]]:
    """The floats of a sample, and a function that rebuilds the sample from new ones."""
    floating, rest = eqx.partition(z, eqx.is_inexact_array)
    flat, back = ravel_pytree(floating)
    return flat, lambda moved: eqx.combine(back(moved), rest)


def _level(batch: Batch) -> Float[Array, " m"]:
    """The mean of a batch's samples."""
    return masked_mean(jax.vmap(lambda z: _numbers(z)[0])(batch.z), batch.mask)


def _moved(z: Sample, far: Float[Array, " m"]) -> Sample:
    flat, back = _numbers(z)
    return back(flat + far)

"""Clients that send noisy clipped means instead of rows: each release is one sample for the learner."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from performative._base.checks import check_counts, check_finite, check_rule
from performative.populations.base import AbstractPopulation
from performative.populations.wrappers import check_inside
from performative.types import Noise, Numbers, RowNumbers, Scene, Theta, World, number


class Released(AbstractPopulation[World]):
    """Each sample is one release of a client: the mean of n clipped rows, plus noise.

        Z = (1/n) sum_{j <= n} z_j min(1, clip / |z_j|)  +  N(0, (noise_multiplier clip / n)^2),   z_j ~ inner

    For rows that are arrays of numbers. The mean equals that of `inner` if no row is clipped.
    """

    references = ()

    inner: AbstractPopulation[World]
    rows_each: int = eqx.field(static=True)
    clip: Numbers = number()
    noise_multiplier: Numbers = number()

    def __check_init__(self) -> None:
        check_inside("Released", inner=self.inner)
        check_counts(rows_each=self.rows_each)
        check_finite("Released", clip=self.clip, noise_multiplier=self.noise_multiplier)
        check_rule("Released", "must be above 0", clip=self.clip)

    def model_shape(self) -> tuple[int, ...] | None:
        return self.inner.model_shape()

    def init(self, scene: Scene) -> World:
        return self.inner.init(scene)

    def deploy(self, world: World, scene: Scene) -> World:
        return self.inner.deploy(world, scene)

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...], theta: Theta, rows: RowNumbers | None = None) -> Noise:
        people, added = jax.random.split(key)
        theta = jnp.asarray(theta)
        drawn = self.inner.draw(people, (*shape, self.rows_each), theta)
        return drawn, jax.random.normal(added, (*shape, *theta.shape), theta.dtype)

    def sample(self, noise: Noise, world: World, theta: Theta) -> Array:
        people, added = noise
        z = jax.vmap(lambda one: self.inner.sample(one, world, theta))(people)
        norm = jnp.linalg.norm(z.reshape(self.rows_each, -1), axis=1)
        kept = z * jnp.minimum(1.0, self.clip / jnp.maximum(norm, 1e-30)).reshape(-1, *(1,) * (z.ndim - 1))
        spread = self.noise_multiplier * self.clip / self.rows_each
        return jnp.mean(kept, axis=0) + spread * added.reshape(z.shape[1:])

"""Clients of unequal weight expressed as clients of equal weight with scaled losses."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from performative.facts import declared
from performative.populations.base import AbstractPopulation, equal_rows_of
from performative.populations.linear import Translation
from performative.populations.wrappers import AbstractWrapper
from performative.types import ArrayLike, Loss, Noise, Numbers, RowNumbers, Sample, Scene, Theta, World, per_client


class ScaledLoss(eqx.Module):
    """l'(theta; (z, q)) = q l(theta; z)."""

    inner: Loss

    def __call__(self, theta: Theta, z: tuple[Sample, Array]) -> Array:
        sample, factor = z
        value = self.inner(theta, sample)
        return jnp.asarray(factor, value.dtype) * value


class Scaled(AbstractWrapper[World]):
    """Samples (z, q_i): what `ScaledLoss` needs so that client i minimizes g_i = q_i f_i. See `Problem.scaled`."""

    references = ("jin2024performative", "li2020convergence")

    inner: AbstractPopulation[World]
    factor: Numbers = per_client()

    exact_family: ClassVar[bool] = False

    @property
    def family(self) -> None:
        return None

    def equal_rows(self) -> tuple[int, ...]:
        return equal_rows_of(self.inner)

    def translations(self) -> list[Translation] | None:
        return declared(self.inner, "translations")

    def init(self, scene: Scene) -> World:
        return self.inner.init(_inside(scene))

    def deploy(self, world: World, scene: Scene) -> World:
        return self.inner.deploy(world, _inside(scene))

    def settle(self, scene: Scene) -> World:
        return self.inner.settle(_inside(scene))

    def world_metrics(self, before: World, after: World) -> dict[str, Array]:
        return self.inner.world_metrics(before, after)

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...], theta: Theta, rows: RowNumbers | None = None) -> Noise:
        return self.inner.draw(key, shape, theta, rows)

    def sample(self, noise: Noise, world: World, theta: Theta) -> Sample:
        return self.inner.sample(noise, world, theta), self.factor

    def group(self, noise: Noise, world: World, theta: Theta) -> Int[Array, ""] | None:
        return self.inner.group(noise, world, theta)

    def quadrature(self, theta: Theta, count: int) -> tuple[Noise, Array]:
        return self.inner.quadrature(theta, count)

    def quadrature_within(self, world: World, theta: Theta, count: int) -> tuple[Noise, Array]:
        return self.inner.quadrature_within(world, theta, count)

    def stable_point(self, loss: Loss, weights: ArrayLike) -> Theta | None:
        return self.inner.stable_point(_own(loss), self._weights(weights))

    def optimal_point(self, loss: Loss, weights: ArrayLike) -> Theta | None:
        return self.inner.optimal_point(_own(loss), self._weights(weights))

    def _weights(self, weights: ArrayLike) -> Any:
        """sum_i w_i q_i f_i is the mean of the f_i with weights w_i q_i."""
        return np.asarray(weights) * np.asarray(self.factor)


def _inside(scene: Scene) -> Scene:
    return Scene(scene.theta, _own(scene.loss), scene.time, scene.models, scene.player)


def _own(loss: Loss) -> Loss:
    return loss.inner if isinstance(loss, ScaledLoss) else loss

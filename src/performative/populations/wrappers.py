"""Populations made of other populations."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from performative._base.checks import check_finite, check_rule
from performative._base.forwarding import hands_on
from performative.facts import Uncertified, declared
from performative.populations.base import AbstractPopulation, equal_rows_of
from performative.populations.linear import Translation, mixed
from performative.populations.nodes import in_turn
from performative.types import Noise, Numbers, RowNumbers, Sample, Scene, Theta, World, per_client


def check_inside(owner: str, **parts: object) -> None:
    """Raise unless each part is a population."""
    for name, part in parts.items():
        if not isinstance(part, AbstractPopulation):
            raise ValueError(f"{owner}: {name} must be a population; got {part!r}.")


@hands_on("capacity", "rows", "smooth", "group_count", "family", "exact_family", "model_shape", "level_field")
class AbstractWrapper(AbstractPopulation[World]):
    """A population around another one, whose tables and model it shares."""

    inner: eqx.AbstractVar[AbstractPopulation]

    @property
    def clean(self) -> AbstractPopulation:
        inside = self.inner.clean
        return self if inside is self.inner else dataclasses.replace(self, inner=inside)


class Contaminated(AbstractWrapper[tuple[World, PyTree]]):
    """Huber contamination: a fraction of the samples comes from another distribution.

        P_i(theta) = (1 - fraction_i) D_i(theta) + fraction_i Q_i

    `outlier` is any population; it may differ between clients and may even react. Its samples need `inner`'s shape.
    The stable and optimal points are those of P, not of D: use `inner` to get the clean ones.
    """

    references = ("huber1964robust",)
    exact_family = False

    inner: AbstractPopulation[World]
    fraction: Numbers = per_client()
    outlier: AbstractPopulation  # type: ignore[misc]  # per_client() is a field without a default

    def __check_init__(self) -> None:
        check_inside("Contaminated", inner=self.inner, outlier=self.outlier)
        check_finite("Contaminated", fraction=self.fraction)
        check_rule("Contaminated", "must lie in [0, 1)", fraction=self.fraction)
        _ = self.clients

    def equal_rows(self) -> tuple[int, ...]:
        if equal_rows_of(self.outlier):
            raise Uncertified("Contaminated: the rows of outlier's table are drawn with their own probabilities")
        return equal_rows_of(self.inner)

    def translations(self) -> list[Translation] | None:
        fraction = np.broadcast_to(np.asarray(self.fraction, np.float64), self.clients)
        inside = [declared(part, "translations") for part in (self.inner, self.outlier)]
        return mixed([1.0 - fraction, fraction], inside)

    @property
    def clean(self) -> AbstractPopulation:
        return self.inner.clean

    def init(self, scene: Scene) -> tuple[World, PyTree]:
        return self.inner.init(scene), self.outlier.init(scene)

    def deploy(self, world: tuple[World, PyTree], scene: Scene) -> tuple[World, PyTree]:
        return self.inner.deploy(world[0], scene), self.outlier.deploy(world[1], scene)

    def world_metrics(self, before: tuple[World, PyTree], after: tuple[World, PyTree]) -> dict[str, Array]:
        return self.inner.world_metrics(before[0], after[0])

    def settle(self, scene: Scene) -> tuple[World, PyTree]:
        return self.inner.settle(scene), self.outlier.settle(scene)

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...], theta: Theta, rows: RowNumbers | None = None) -> Noise:
        key_which, key_inner, key_outlier = jax.random.split(key, 3)
        which = jax.random.uniform(key_which, shape)
        return (which, self.inner.draw(key_inner, shape, theta, rows), self.outlier.draw(key_outlier, shape, theta))

    def sample(self, noise: Noise, world: tuple[World, PyTree], theta: Theta) -> Sample:
        which, inner, outlier = noise
        clean = self.inner.sample(inner, world[0], theta)
        dirty = self.outlier.sample(outlier, world[1], theta)
        shapes = [jax.tree.map(jnp.shape, z) for z in (clean, dirty)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"Contaminated: outlier's samples have shape {shapes[1]}, but those of inner have shape {shapes[0]}; "
                "pass an outlier population with samples of the same shape."
            )
        stray = which < self.fraction
        return jax.tree.map(lambda c, o: jnp.where(stray, o.astype(c.dtype), c), clean, dirty)

    def group(self, noise: Noise, world: tuple[World, PyTree], theta: Theta) -> Int[Array, ""] | None:
        """An outlier is assigned the group of the person it replaces."""
        return self.inner.group(noise[1], world[0], theta)

    def quadrature(self, theta: Theta, count: int) -> tuple[Noise, Array]:
        return self._mix(self.inner.quadrature(theta, count), self.outlier.quadrature(theta, count))

    def quadrature_within(self, world: tuple[World, PyTree], theta: Theta, count: int) -> tuple[Noise, Array]:
        clean = self.inner.quadrature_within(world[0], theta, count)
        return self._mix(clean, self.outlier.quadrature_within(world[1], theta, count))

    def _mix(self, inside: tuple[Noise, Array], outside: tuple[Noise, Array]) -> tuple[Noise, Array]:
        clean, dirty = inside[1], outside[1]
        # `which` below 0 always picks the outlier and above 1 the inner: the mixture is exact, not sampled.
        which = jnp.concatenate([jnp.full(clean.shape, 2.0), jnp.full(dirty.shape, -1.0)])
        weights = jnp.concatenate([(1 - self.fraction) * clean, self.fraction * dirty])
        return (which, *in_turn([inside, outside])), weights

"""Data that drift on their own, in addition to reacting to the model."""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int

from performative._base.checks import is_one_of
from performative._base.forwarding import hands_on
from performative.paths import AbstractPath
from performative.populations.base import AbstractPopulation, equal_rows_of
from performative.populations.wrappers import AbstractWrapper, check_inside
from performative.types import ArrayLike, Noise, Numbers, Sample, Scene, Theta, Unchecked, World, per_client


@hands_on("draw", "quadrature", "equal_rows", "translations")
class Shifted(AbstractWrapper[World]):
    """The same people with shifted samples: z + shift_i, or the features x of samples (x, y)."""

    inner: AbstractPopulation[World]
    shift: Numbers = per_client()

    def init(self, scene: Scene) -> World:
        return self.inner.init(scene)

    def deploy(self, world: World, scene: Scene) -> World:
        return self.inner.deploy(world, scene)

    def settle(self, scene: Scene) -> World:
        return self.inner.settle(scene)

    def sample(self, noise: Noise, world: World, theta: Theta) -> Sample:
        z = self.inner.sample(noise, world, theta)
        return (z[0] + self.shift, *z[1:]) if isinstance(z, tuple) else z + self.shift

    def group(self, noise: Noise, world: World, theta: Theta) -> Int[Array, ""] | None:
        return self.inner.group(noise, world, theta)

    def quadrature_within(self, world: World, theta: Theta, count: int) -> tuple[Noise, Array]:
        return self.inner.quadrature_within(world, theta, count)


@hands_on("draw", "quadrature", "translations")
class Drifting(AbstractWrapper[tuple[Array, World]]):
    """A population whose level drifts with simulated time, in addition to reacting to the model.

        Z_i ~ D_i(theta; m_i + path_i(t))

    `of` names the field that moves, such as "mean" of a `Gaussian`; None uses the population's own level if it has one;
    otherwise all samples are shifted. A client's people react to a model at the simulated time of its deployment
    (`clock` of `pf.run`; by default a local step takes one unit). `pf.stable_point(problem, time=t)` returns the moving
    point.

    With the squared loss, m_bar moving by v per round, constant step size eta, E = 1 and c = 1 - eps_bar, the mean
    square distance to the moving stable point tends to (v / (c^2 eta))^2 + eta sigma^2 / (c (2 - eta c)): small steps
    lag behind, large ones are noisy. Lee and Zrnic 2026.
    """

    references = ()
    reads_time = True

    inner: AbstractPopulation[World]
    path: AbstractPath
    of: Unchecked[str | None] = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_inside("Drifting", inner=self.inner)
        if not isinstance(self.path, AbstractPath):
            raise ValueError(f"Drifting: path must be a path such as pf.paths.Linear(0.1); got {self.path!r}.")
        if self.of is not None and not is_one_of(self.of, *(field.name for field in dataclasses.fields(self.inner))):
            raise ValueError(f"Drifting: of must name a field of {type(self.inner).__name__}; got {self.of!r}.")
        _ = self.clients
        self._check_level()

    def _check_level(self) -> None:
        """Raise if the path does not match the shape of what it moves."""
        name, shape = self.of or self.inner.level_field, self.inner.model_shape()
        tables = [field.name for field in dataclasses.fields(self.inner) if field.metadata.get("table")]
        if name in tables:
            raise ValueError(
                f"Drifting: of={name!r} is a table of {type(self.inner).__name__}; leave `of` out to move the samples."
            )
        moved = eqx.filter_eval_shape(self.path.value, 0.0).shape
        if name is not None and shape is not None and len(moved) > 1 and moved[1:] != shape:
            raise ValueError(
                f"Drifting: path moves quantities of shape {moved[1:]} per client, but {name} of "
                f"{type(self.inner).__name__} has shape {shape}; pass a number, one per client, or {('N', *shape)}."
            )

    @property
    def path_of_level(self) -> AbstractPath:
        return self.path

    @property
    def moves_level_alone(self) -> bool:
        return not self.inner.reads_time and self.of in (None, self.inner.level_field)

    def equal_rows(self) -> tuple[int, ...]:
        return equal_rows_of(self.inner)

    def at(self, time: ArrayLike) -> AbstractPopulation:
        """The people at that time: `inner` with its level moved."""
        inner, moved = self.inner.at(time), self.path.value(time)
        name = self.of or inner.level_field
        if name is None:
            return Shifted(inner, moved)
        level = jnp.asarray(_level(inner, name))
        if 0 < moved.ndim < level.ndim:  # one number per client combined with several
            moved = moved.reshape(moved.shape + (1,) * (level.ndim - moved.ndim))
        elif 0 < level.ndim < moved.ndim:
            level = level.reshape(level.shape + (1,) * (moved.ndim - level.ndim))
        return eqx.tree_at(lambda part: _level(part, name), inner, level + moved)

    def init(self, scene: Scene) -> tuple[Array, World]:
        time = jnp.zeros(()) if scene.time is None else scene.time
        return time, self.at(time).init(scene)

    def deploy(self, world: tuple[Array, World], scene: Scene) -> tuple[Array, World]:
        time = _known(scene)
        return time, self.at(time).deploy(world[1], scene)

    def settle(self, scene: Scene) -> tuple[Array, World]:
        time = _known(scene)
        return time, self.at(time).settle(scene)

    def world_metrics(self, before: tuple[Array, World], after: tuple[Array, World]) -> dict[str, Array]:
        return self.at(after[0]).world_metrics(before[1], after[1])

    def sample(self, noise: Noise, world: tuple[Array, World], theta: Theta) -> Sample:
        return self.at(world[0]).sample(noise, world[1], theta)

    def group(self, noise: Noise, world: tuple[Array, World], theta: Theta) -> Int[Array, ""] | None:
        return self.at(world[0]).group(noise, world[1], theta)

    def quadrature_within(self, world: tuple[Array, World], theta: Theta, count: int) -> tuple[Noise, Array]:
        return self.at(world[0]).quadrature_within(world[1], theta, count)


def _level(part: Any, name: str) -> Any:
    """The field of that name, of the population itself or of an inner one."""
    return getattr(part, name) if hasattr(part, name) else _level(part.inner, name)


def _known(scene: Scene) -> Any:
    if scene.time is None:
        raise ValueError(
            "Drifting: people change with time, so specify it: problem.at(time), or time= if the function has it."
        )
    return scene.time

"""Gaussian mean estimation under shift."""

import dataclasses
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from performative import losses
from performative._base.checks import check_finite, check_rule
from performative.families import Location
from performative.populations.base import AbstractPopulation, new_people
from performative.populations.linear import Translation, by_client, check_shapes, divide, exact, moved, react, widest
from performative.populations.nodes import standard_nodes
from performative.types import ArrayLike, Loss, Numbers, RowNumbers, Theta, per_client


class AbstractLocation(AbstractPopulation[None]):
    """Normal data around a location that is linear in the model.

        Z_i ~ N(level_i + slope_i * theta, scale_i^2)

    `level` is a number, [N] or [N, d]; `slope` may also be [N, d, d], a linear map. The first field is the level.
    """

    exact_family = True

    sensitivity: eqx.AbstractVar[Numbers]
    scale: eqx.AbstractVar[Numbers]

    @property
    @abstractmethod
    def level(self) -> Any:
        """Where the data lie at theta = 0."""

    @property
    @abstractmethod
    def slope(self) -> Any:
        """How their mean depends on theta."""

    def __check_init__(self) -> None:
        owner = type(self).__name__
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        check_finite(owner, **fields)
        if self.clients < 1:
            raise ValueError(f"{owner}: {next(iter(fields))} is empty; pass one entry per client.")
        check_rule(owner, "is a standard deviation and must be >= 0", scale=self.scale)
        check_shapes(owner, self.model_shape(), fields, matrices=("sensitivity",))

    @property
    def family(self) -> Location:
        return Location()

    def model_shape(self) -> tuple[int, ...]:
        # A matrix maps theta to a shift of the same length, so one of its axes is enough.
        return widest(np.shape(self.level)[1:], np.shape(self.sensitivity)[1:2], np.shape(self.scale)[1:])

    def location(self, theta: Theta) -> Array:
        """The client's mean under theta."""
        return self.level + react(self.slope, theta)

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...], theta: Theta, rows: RowNumbers | None = None) -> Array:
        theta = jnp.asarray(theta)
        full = (*shape, *theta.shape)
        # Drawn flat: the generator's counter is then one contiguous range, which compiles to fewer passes.
        return jax.random.normal(key, (int(np.prod(full)),), theta.dtype).reshape(full)

    def sample(self, noise: Array, world: None, theta: Theta) -> Array:
        return self.location(theta) + self.scale * noise

    def quadrature(self, theta: Theta, count: int) -> tuple[Array, Array]:
        return standard_nodes(jnp.shape(theta), count)

    def stable_point(self, loss: Loss, weights: ArrayLike) -> Theta | None:
        """(1 - slope_bar) theta = level_bar with the squared loss."""
        if loss is not losses.squared:
            return None
        level, slope = self.averages(weights)
        return divide(level, (np.eye(len(slope)) if slope.ndim == 2 else 1.0) - slope)

    def optimal_point(self, loss: Loss, weights: ArrayLike) -> Theta | None:
        """sum_i p_i (1 - slope_i)^2 theta = sum_i p_i (1 - slope_i) level_i with the squared loss."""
        if loss is not losses.squared or np.ndim(self.slope) == 3:
            return None
        p, m, eps = self._rows(weights)
        return divide((p * (1 - eps) * m).sum(axis=0), (p * (1 - eps) ** 2).sum(axis=0))

    def averages(self, weights: ArrayLike) -> tuple[Any, Any]:
        """level_bar and slope_bar (a number, a vector or a matrix), weighted by p."""
        if np.ndim(self.slope) == 3:
            p = exact(weights).reshape(-1, 1)
            level, slope = by_client(self.level, self.clients, self.model_shape()), exact(self.slope)
            return (p * level).sum(axis=0), (p[..., None] * slope).sum(axis=0)
        p, m, eps = self._rows(weights)
        return (p * m).sum(axis=0), (p * eps).sum(axis=0)

    def _rows(self, weights: ArrayLike) -> tuple[Any, Any, Any]:
        """p_i, level_i, slope_i as [N, *model shape]."""
        clients, shape = self.clients, self.model_shape()
        p = exact(weights).reshape(-1, *(1,) * len(shape))
        return p, by_client(self.level, clients, shape), by_client(self.slope, clients, shape)


def follow_slope(location: AbstractLocation) -> list[Translation]:
    """`translations` of a class without further reactions; such a class declares it itself."""
    return moved(location.slope, location.clients)


class Gaussian(AbstractLocation):
    """A location that follows the model.

        Z_i ~ N(m_i + eps_i * theta, scale_i^2)

    `mean` m_i is [N] for a number theta, [N, d] for a vector; `sensitivity` eps_i a number, [N], [N, d] or [N, d, d].
    With the squared loss: theta_PS = m_bar / (1 - eps_bar), theta_PO = sum p (1-eps) m / sum p (1-eps)^2.
    Jin et al. 2024, Section 4.1. Retraining converges to theta_PS only if |eps_bar| < 1.
    """

    references = ("jin2024performative",)
    equal_rows, translations = new_people, follow_slope
    level_field = "mean"

    mean: Numbers = per_client()
    sensitivity: Numbers = per_client()
    scale: Numbers = per_client()

    @property
    def level(self) -> Any:
        return self.mean

    @property
    def slope(self) -> Any:
        return self.sensitivity

"""Clients that look harder at what the model gets wrong."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from performative.errors import check_finite
from performative.families import Proportions
from performative.populations.base import AbstractPopulation
from performative.populations.strategic import as_counts, as_labels
from performative.types import Counts, Loss, Numbers, Theta, World, as_numbers, per_client


class Reweighted(AbstractPopulation):
    """Class weights that follow the class losses; the world is the weights.

        w_k <- exp(temperature * loss_k(theta)) / sum_j exp(temperature * loss_j(theta))

    A sample is a class k drawn by w, then one of the client's rows of that class. The weights persist between rounds.
    Classes that a client does not hold keep weight 0. Jin et al. 2024, Section 4.3.
    The constructor orders each client's rows by class, so that a draw costs nothing in the number of rows.
    """

    x: Numbers = per_client(table=True)
    y: Counts = per_client(table=True, converter=as_labels)
    temperature: Numbers = per_client()
    start: Counts = per_client(converter=as_counts)
    held: Counts = per_client(converter=as_counts)
    classes: int = eqx.field(static=True)  # type: ignore[misc]  # per_client() is a field without a default

    def __init__(self, x: Any, y: Any, temperature: Any, classes: int | None = None):
        x, y = as_numbers(x), np.asarray(as_labels(y))
        if np.ndim(x) < 3 or y.shape != np.shape(x)[:2]:
            raise ValueError(
                f"Reweighted: x must be [clients, rows, ...] and y [clients, rows]; got {np.shape(x)} and {y.shape}."
            )
        if y.dtype.kind != "i" or y.min() < 0:
            raise ValueError(f"Reweighted: y must hold class numbers 0, 1, ...; got {np.unique(y)[:5].tolist()}.")
        check_finite("Reweighted", x=x, temperature=as_numbers(temperature))
        self.classes = int(y.max()) + 1 if classes is None else int(classes)
        if y.max() >= self.classes:
            raise ValueError(
                f"Reweighted: classes={classes}, but y holds class {y.max()}; give at least {y.max() + 1}."
            )
        order = np.argsort(y, axis=1, kind="stable")
        self.x = np.stack([np.asarray(rows)[o] for rows, o in zip(x, order, strict=True)])
        self.y = np.take_along_axis(y, order, axis=1)
        held = np.stack([np.bincount(row, minlength=self.classes) for row in y])
        self.held = held.astype(np.int32)
        self.start = (np.cumsum(held, axis=1) - held).astype(np.int32)
        self.temperature = as_numbers(temperature)

    @property
    def smooth(self) -> bool:
        return False

    @property
    def group_count(self) -> int:
        return self.classes

    @property
    def family(self) -> Proportions:
        return Proportions(self.classes)

    def init(self, theta: Theta, loss: Loss) -> World:
        held = self.held.astype(jnp.result_type(float))
        return held / jnp.sum(held)

    def deploy(self, world: World, theta: Theta, loss: Loss) -> World:
        every = jnp.arange(self.x.shape[0], dtype=jnp.int32)
        each = jax.vmap(lambda row: loss(theta, (self.x[row], self.y[row])))(every)
        member = self.y[every][:, None] == jnp.arange(self.classes, dtype=self.y.dtype)
        total = jnp.sum(jnp.where(member, each[:, None], 0), axis=0)
        score = self.temperature * total / jnp.maximum(self.held, 1).astype(total.dtype)
        weights = jax.nn.softmax(jnp.where(self.held > 0, score, -jnp.inf))
        return weights.astype(world.dtype)

    def draw(self, key: Any, shape: Any, theta: Theta, rows: Any = None) -> Array:
        return jax.random.uniform(key, (*shape, 2))

    def nodes_within(self, world: World, theta: Theta, count: int) -> tuple[Array, Array]:
        """Every row once, with chance w_k / (rows of class k): exact, and smooth in the world."""
        every = jnp.arange(self.x.shape[0], dtype=jnp.int32)
        label = self.y[every]
        held, mine = self.held[label].astype(world.dtype), world[label]
        edges = jnp.cumsum(world)
        # The middle of the interval of (0, 1) that `sample` maps to the row.
        picks_class = (edges[label] - mine / 2) / edges[-1]
        picks_row = ((every - self.start[label]).astype(world.dtype) + 0.5) / held
        return jax.lax.stop_gradient(jnp.stack([picks_class, picks_row], axis=1)), mine / held

    def group(self, noise: Array, world: World, theta: Theta) -> Array:
        return self.sample(noise, world, theta)[1]

    def sample(self, noise: Array, world: World, theta: Theta) -> tuple[Array, Array]:
        edges = jnp.cumsum(world)
        picked = jnp.sum(noise[0] * edges[-1] >= edges[:-1], dtype=jnp.int32)
        inside = jnp.floor(noise[1] * self.held[picked].astype(noise.dtype)).astype(jnp.int32)
        row = self.start[picked] + jnp.minimum(inside, self.held[picked] - 1)
        return self.x[row], self.y[row]

"""Gaussian classes whose features respond to the model."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from performative._base.checks import check_finite, check_flags, check_rule
from performative.families import ClassLocation
from performative.populations.base import AbstractPopulation, new_people
from performative.populations.linear import Translation
from performative.populations.nodes import standard_nodes
from performative.populations.shares import pick
from performative.types import ArrayLike, Noise, Numbers, RowNumbers, Theta, as_numbers, is_concrete, per_client


class Classes(AbstractPopulation[None]):
    """Normal features by class; each class reacts with its own sensitivity.

        y ~ share_i,      x | y = k ~ N(mean_{i,k} - sensitivity_{i,k} theta, scale_i^2)

    z = (x, y), y = 0, 1, ... and theta of shape (d,). `mean` is [C, d], shared by all clients, or [N, C, d];
    `sensitivity` a number, or [N, C]; `scale` a standard deviation, a number or [N]; `share` [C] or [N, C], None for
    classes of equal size. Shared values are stored once per client. With `intercept` a constant feature 1 is appended,
    and theta has one more entry. The move is the best response to the utility
    -theta.x' - |x' - x|^2 / (2 sensitivity). Zheng et al. 2024, Section 6 and Table 2, synthetic data.
    """

    references = ("zheng2024profl",)
    exact_family = True
    equal_rows = new_people

    mean: Numbers = per_client()
    sensitivity: Numbers = per_client()
    scale: Numbers = per_client()
    share: Numbers = per_client()
    intercept: bool = eqx.field(static=True)  # type: ignore[misc]  # per_client() is a field without a default

    def __init__(
        self,
        mean: ArrayLike,
        sensitivity: ArrayLike,
        scale: ArrayLike,
        share: ArrayLike | None = None,
        intercept: bool = False,
    ):
        self.intercept = intercept
        self.sensitivity, self.scale = as_numbers(sensitivity), as_numbers(scale)
        means, shares = as_numbers(mean), as_numbers(share)
        if np.ndim(means) not in (2, 3):
            raise ValueError(f"Classes: mean must be [C, d] or [N, C, d]; got shape {np.shape(means)}.")
        classes = means.shape[-2]
        if shares is None:
            shares = np.full(classes, 1.0 / classes)
        # [C, d] in a per-client field would be read as C clients, so it is broadcast.
        named = ((means, 3), (self.sensitivity, 1), (self.scale, 1), (shares, 2))
        clients = next((np.shape(v)[0] for v, axes in named if np.ndim(v) >= axes), 1)
        self.mean = _by_client(means, clients, 3)
        self.share = _by_client(shares, clients, 2)

    def __check_init__(self) -> None:
        check_flags("Classes", intercept=self.intercept)
        check_finite("Classes", mean=self.mean, sensitivity=self.sensitivity, scale=self.scale, share=self.share)
        clients = self.clients
        if min(np.shape(self.mean)) < 1:
            raise ValueError(f"Classes: mean must not be empty; got shape {np.shape(self.mean)}.")
        per_class = (clients, self.classes)
        for name, shapes in (("sensitivity", ((), per_class)), ("scale", ((), (clients,))), ("share", (per_class,))):
            if np.shape(getattr(self, name)) not in shapes:
                allowed = {"sensitivity": "a number or [N, C]", "scale": "a number or [N]", "share": "[C] or [N, C]"}
                raise ValueError(
                    f"Classes: {name} must be {allowed[name]} for {clients} clients and {self.classes} classes; "
                    f"got shape {np.shape(getattr(self, name))}."
                )
        check_rule("Classes", "is a standard deviation and must be >= 0", scale=self.scale)
        if is_concrete(self.share):
            share = np.asarray(self.share)
            if np.any(share < 0) or np.any(np.abs(share.sum(axis=1) - 1) > 1e-6):
                raise ValueError("Classes: share must be >= 0 and sum to one over the classes.")

    def translations(self) -> list[Translation]:
        moves = np.broadcast_to(np.asarray(self.sensitivity, np.float64), (self.clients, self.classes))
        share = np.asarray(self.share, np.float64)
        return [Translation(share[:, k], -moves[:, k]) for k in range(self.classes)]

    @property
    def classes(self) -> int:
        """C."""
        return self.mean.shape[-2]

    @property
    def group_count(self) -> int:
        return self.classes

    @property
    def family(self) -> ClassLocation:
        return ClassLocation(self.classes)

    def model_shape(self) -> tuple[int, ...]:
        return (self.mean.shape[-1] + self.intercept,)

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...], theta: Theta, rows: RowNumbers | None = None) -> Noise:
        key_which, key_x = jax.random.split(key)
        theta = jnp.asarray(theta)
        which = jax.random.uniform(key_which, (int(np.prod(shape)),))
        label = jax.vmap(lambda u: pick(u, self.share))(which).reshape(shape)
        full = (*shape, self.mean.shape[-1])
        return label, jax.random.normal(key_x, (int(np.prod(full)),), theta.dtype).reshape(full)

    def sample(self, noise: Noise, world: None, theta: Theta) -> tuple[Array, Array]:
        label, spread = noise
        push = jnp.broadcast_to(self.sensitivity, (self.classes,))[label] * theta[: self.mean.shape[-1]]
        x = self.mean[label] - push + self.scale * spread
        return (jnp.append(x, jnp.ones((), x.dtype)) if self.intercept else x), label

    def group(self, noise: Noise, world: None, theta: Theta) -> Array:
        return noise[0]

    def quadrature(self, theta: Theta, count: int) -> tuple[Noise, Array]:
        """Every class in turn, weighted by its share."""
        spread, weight = standard_nodes(self.mean.shape[-1:], count)
        label = jnp.repeat(jnp.arange(self.classes, dtype=jnp.int32), len(weight))
        share = self.share / jnp.sum(self.share)
        weights = share.astype(weight.dtype)[:, None] * weight
        return (label, jnp.tile(spread, (self.classes, *(1,) * (spread.ndim - 1)))), weights.reshape(-1)


def _by_client(value: ArrayLike, clients: int, axes: int) -> Any:
    """Add a leading axis of clients if there is none yet."""
    return np.broadcast_to(value, (clients, *np.shape(value))) if np.ndim(value) == axes - 1 else value

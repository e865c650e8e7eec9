"""People who change their features in response to the model."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from performative._base.checks import check_finite, check_number, check_rule, is_one_of
from performative.families import ClassLocation
from performative.populations.base import AbstractRows, real_rows
from performative.populations.linear import Translation, moved
from performative.populations.rows import as_counts, as_labels, check_tables, labels_in
from performative.types import Counts, Numbers, Theta, Unchecked, as_array, as_whole, number, per_client


def _as_columns(features: Unchecked[Sequence[int] | None]) -> Any:
    """Column numbers as a tuple of ints; anything else is left to the checks."""
    if features is None or as_array(features).ndim != 1:
        return features
    return tuple(map(as_whole, features))


class Strategic(AbstractRows[None]):
    """Best response to a linear model on some features; the labels do not change.

        "linear":  x = x_bar - strength_i * theta  on `features`               (Perdomo et al. 2020; Jin et al. 2024)
        "evade":   x = x_bar - strength_i * y theta / max(floor, |theta|)      (Li, Yemini and Wai 2024, Example 2.3)

    `x` [N, m, d], `y` [N, m]; clients with fewer than m rows are padded and `count` [N] is the number of real rows.
    `strength` is a number, [N], or [N, 2]: strength_{i,y} for the labels y = 0 and 1 (Zheng et al. 2024, Table 2).
    `features` lists the columns that people can change, None for all. "linear" is the best response to the utility
    -theta.x - |x - x_bar|^2 / (2 strength); "evade" moves only those with y = 1, by at most `strength`.
    """

    references = ("hardt2016strategic", "perdomo2020performative")
    equal_rows = real_rows

    x: Numbers = per_client(table=True)
    y: Any = per_client(table=True, converter=as_labels)
    strength: Numbers = per_client()
    features: tuple[int, ...] | None = eqx.field(static=True, default=None, converter=_as_columns)
    count: Counts | None = per_client(default=None, converter=as_counts)
    response: str = eqx.field(static=True, default="linear")
    floor: Numbers = number(default=1e-3)

    @classmethod
    def more_references(cls, settings: Mapping[str, Any]) -> tuple[str, ...]:
        return ("li2024clipped",) if settings.get("response") == "evade" else ()

    def __check_init__(self) -> None:
        if np.ndim(self.x) != 3:
            raise ValueError(f"Strategic: x must be [clients, rows, features]; got shape {np.shape(self.x)}.")
        if np.shape(self.y) != np.shape(self.x)[:2]:
            raise ValueError(
                f"Strategic: y must be [clients, rows] = {np.shape(self.x)[:2]}, like x; got shape {np.shape(self.y)}."
            )
        if not is_one_of(self.response, "linear", "evade"):
            raise ValueError(f'Strategic: response must be "linear" or "evade"; got {self.response!r}.')
        d = self.x.shape[2]
        listed = isinstance(self.features, tuple) and all(isinstance(f, int) and 0 <= f < d for f in self.features)
        if self.features is not None and not listed:
            raise ValueError(f"Strategic: features must be column numbers 0..{d - 1} of x; got {self.features}.")
        check_tables("Strategic", self.count, x=self.x, y=self.y)
        check_finite("Strategic", strength=self.strength)
        check_number("Strategic", floor=self.floor)
        check_rule("Strategic", "must be above 0", floor=self.floor)
        self._check_strength()
        _ = self.clients

    def _check_strength(self) -> None:
        by_label = np.ndim(self.strength) == 2 and np.shape(self.strength)[1] == 2
        if np.ndim(self.strength) > 1 and not by_label:
            raise ValueError(
                "Strategic: strength must be a number, one per client, or [clients, 2], one for each label; "
                f"got shape {np.shape(self.strength)}."
            )
        found = labels_in(self) if by_label else None
        if found is not None and not np.all(np.isin(found, (0, 1))):
            raise ValueError(f"Strategic: strength by label needs labels y of 0 and 1; got {found[:5].tolist()}.")

    @property
    def capacity(self) -> int:
        return self.x.shape[-2]

    def translations(self) -> list[Translation] | None:
        """x - strength_{i,y} theta on the columns that people can change; the labels do not change."""
        if self.response != "linear":
            return None  # how far people go depends on |theta|
        clients, strength = self.clients, np.asarray(self.strength, np.float64)
        if self.features is not None and not self.features:
            return moved(0.0, clients)
        if strength.ndim < 2:
            return moved(-strength, clients)
        y = np.asarray(self.y)
        real = np.arange(y.shape[1]) < np.reshape(np.broadcast_to(self.rows, clients), (-1, 1))
        ones = np.sum(real & (y > 0), axis=1) / np.sum(real, axis=1)
        return [Translation(1.0 - ones, -strength[:, 0]), Translation(ones, -strength[:, 1])]

    @property
    def group_count(self) -> int | None:
        return 2 if jnp.issubdtype(self.y.dtype, jnp.integer) else None

    @property
    def family(self) -> ClassLocation:
        return ClassLocation(2)

    def model_shape(self) -> tuple[int, ...]:
        return (self.x.shape[-1],)

    def sample(self, noise: Array, world: None, theta: Theta) -> tuple[Array, Array]:
        x, y = self.x[noise], self.y[noise]
        strength = self.strength if self.strength.ndim == 0 else jnp.where(y > 0, self.strength[1], self.strength[0])
        push = strength * theta
        if self.response == "evade":
            norm = jnp.sqrt(jnp.maximum(jnp.sum(jnp.square(theta)), self.floor**2))
            push = push * y.astype(push.dtype) / norm
        if self.features is not None:
            movable = np.isin(np.arange(x.shape[-1]), self.features)
            push = jnp.where(movable, push, 0)
        return x - push, y

    def group(self, noise: Array, world: None, theta: Theta) -> Int[Array, ""] | None:
        return None if self.group_count is None else self.y[noise]

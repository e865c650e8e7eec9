"""Where theta may be. A model is projected after each local step and after each server move."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from performative.types import Numbers, Theta, is_concrete, number, squared_norm

__all__ = ["AbstractDomain", "Ball", "Box"]


class AbstractDomain(eqx.Module):
    """A closed convex set."""

    @abstractmethod
    def project(self, theta: Theta) -> Theta:
        """The nearest point of the set."""

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse a theta of this shape where the set is of another; called where the population settles the shape."""


class Box(AbstractDomain):
    """lo <= theta <= hi, coordinate by coordinate."""

    lo: Any = number()
    hi: Any = number()

    def __check_init__(self) -> None:
        if is_concrete((self.lo, self.hi)) and not np.all(np.asarray(self.lo) <= np.asarray(self.hi)):
            raise ValueError(f"Box needs lo <= hi; got lo={self.lo}, hi={self.hi}.")

    def check(self, shape: tuple[int, ...]) -> None:
        for name, value in (("lo", self.lo), ("hi", self.hi)):
            if np.ndim(value) and np.shape(value) != shape:
                raise ValueError(
                    f"domain: {name} of the Box has shape {np.shape(value)}, but theta has shape {shape}; "
                    "give a plain number, or one for each entry of theta."
                )

    def project(self, theta: Theta) -> Theta:
        return jax.tree.map(lambda v: jnp.clip(v, jnp.asarray(self.lo, v.dtype), jnp.asarray(self.hi, v.dtype)), theta)


class Ball(AbstractDomain):
    """|theta| <= radius, in the Euclidean norm over all leaves."""

    radius: Numbers = number()

    def __check_init__(self) -> None:
        if is_concrete(self.radius) and not np.all(np.asarray(self.radius) > 0):
            raise ValueError(f"Ball needs radius > 0; got {self.radius}.")

    def project(self, theta: Theta) -> Theta:
        norm = jnp.sqrt(squared_norm(theta))
        shrink = jnp.minimum(1.0, self.radius / jnp.maximum(norm, jnp.finfo(norm.dtype).tiny))
        return jax.tree.map(lambda v: v * shrink.astype(v.dtype), theta)

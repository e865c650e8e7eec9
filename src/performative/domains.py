"""Constraint sets for theta. A model is projected after each local step and after each server move."""

import dataclasses
from abc import abstractmethod

import jax
import jax.numpy as jnp
import numpy as np

from performative.facts import AbstractPart
from performative.types import ArrayLike, Numbers, Theta, is_concrete, number, squared_norm

__all__ = ["AbstractDomain", "Ball", "Box"]


class AbstractDomain(AbstractPart):
    """A closed convex set."""

    @abstractmethod
    def project(self, theta: Theta) -> Theta:
        """The nearest point of the set."""

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise if the set's shape differs from theta's; called for every leaf of theta."""

    def __str__(self) -> str:
        """Shows its numbers, unlike the `repr` of an equinox module."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if not is_concrete(fields):
            return repr(self)
        shown = (f"{name}={_brief(value)}" for name, value in fields.items())
        return f"{type(self).__name__}({', '.join(shown)})"


def _brief(value: object) -> str:
    if not isinstance(value, (np.ndarray, np.generic, jax.Array)):
        return repr(value)
    return np.array2string(np.asarray(value), precision=4, threshold=8, edgeitems=2, separator=", ")


def _check_bounds(owner: str, **bounds: ArrayLike) -> None:
    """Raise unless the bounds are numbers; infinity is allowed."""
    for name, value in bounds.items():
        kind = None if value is None else np.asarray(value).dtype.kind if is_concrete(value) else "f"
        if kind not in ("b", "u", "i", "f"):
            raise ValueError(f"{owner}: {name} must contain numbers (np.inf for no bound); got {value!r}.")


class Box(AbstractDomain):
    """lo <= theta <= hi, coordinate by coordinate."""

    references = ()

    lo: Numbers = number()
    hi: Numbers = number()

    def __check_init__(self) -> None:
        _check_bounds("Box", lo=self.lo, hi=self.hi)
        shapes = {np.shape(value) for value in (self.lo, self.hi) if np.ndim(value)}
        if len(shapes) > 1:
            raise ValueError(f"Box: lo and hi need the same shape; got {np.shape(self.lo)} and {np.shape(self.hi)}.")
        if is_concrete((self.lo, self.hi)) and not np.all(np.asarray(self.lo) <= np.asarray(self.hi)):
            raise ValueError(f"Box needs lo <= hi; got lo={self.lo}, hi={self.hi}.")

    def check(self, shape: tuple[int, ...]) -> None:
        for name, value in (("lo", self.lo), ("hi", self.hi)):
            if np.ndim(value) and np.shape(value) != shape:
                raise ValueError(
                    f"domain: {name} of the Box has shape {np.shape(value)}, but theta has shape {shape}; "
                    "pass a plain number, or one for each entry of theta."
                )

    def project(self, theta: Theta) -> Theta:
        return jax.tree.map(lambda v: jnp.clip(v, jnp.asarray(self.lo, v.dtype), jnp.asarray(self.hi, v.dtype)), theta)


class Ball(AbstractDomain):
    """|theta| <= radius, in the Euclidean norm over all leaves."""

    references = ()

    radius: Numbers = number()

    def __check_init__(self) -> None:
        _check_bounds("Ball", radius=self.radius)
        if np.ndim(self.radius):
            raise ValueError(f"Ball: radius must be one number; got shape {np.shape(self.radius)}.")
        if is_concrete(self.radius) and not self.radius > 0:
            raise ValueError(f"Ball needs radius > 0; got {self.radius}.")

    def project(self, theta: Theta) -> Theta:
        norm = jnp.sqrt(squared_norm(theta))
        shrink = jnp.minimum(1.0, self.radius / jnp.maximum(norm, jnp.finfo(norm.dtype).tiny))
        return jax.tree.map(lambda v: v * shrink.astype(v.dtype), theta)

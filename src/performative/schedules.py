"""Step sizes eta(t), with t = round * E + e the global count of local steps, t = 0, 1, ..."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from performative.types import Numbers, number


class AbstractSchedule(eqx.Module):
    """eta(t)."""

    @abstractmethod
    def __call__(self, t: Int[Array, ""]) -> Float[Array, ""]:
        """The step size of local step t."""


class Constant(AbstractSchedule):
    """eta(t) = value."""

    value: Numbers = number()

    def __call__(self, t: Int[Array, ""]) -> Float[Array, ""]:
        return jnp.asarray(self.value)


class Harmonic(AbstractSchedule):
    """eta(t) = scale / (t + offset)."""

    scale: Numbers = number()
    offset: Numbers = number()

    def __call__(self, t: Int[Array, ""]) -> Float[Array, ""]:
        offset = jnp.asarray(self.offset)
        return self.scale / (t.astype(offset.dtype) + offset)


def constant(value: Any) -> Constant:
    """eta(t) = value."""
    return Constant(value)


def harmonic(scale: Any, offset: Any) -> Harmonic:
    """eta(t) = scale / (t + offset)."""
    return Harmonic(scale, offset)


def as_schedule(rate: Any) -> Any:
    """A number means a constant step; a schedule, or any function of t, stays what it is."""
    return rate if callable(rate) else Constant(rate)

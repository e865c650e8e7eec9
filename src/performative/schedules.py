"""Step sizes eta(t), with t = round * E + e the global count of local steps, t = 0, 1, ..."""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from performative._base.arguments import checked
from performative._base.checks import check_counts, check_finite, check_number
from performative.facts import AbstractPart
from performative.theory import Assumptions, p_fedavg
from performative.types import ArrayLike, Numbers, is_concrete, number, whole

__all__ = ["AbstractSchedule", "Constant", "Harmonic", "Power", "Table", "constant", "harmonic", "theorem"]


class AbstractSchedule(AbstractPart):
    """eta(t)."""

    is_constant: ClassVar[bool] = False
    """Whether the step size is constant."""

    @abstractmethod
    def __call__(self, t: Int[Array, ""] | int) -> Float[Array, ""]:
        """The step size of local step t."""


Schedule = Callable[[Int[Array, ""] | int], Array]
Rate = Schedule | ArrayLike


class Constant(AbstractSchedule):
    """eta(t) = value."""

    references = ()
    is_constant = True

    value: Numbers = number()

    def __call__(self, t: Int[Array, ""] | int) -> Float[Array, ""]:
        return jnp.asarray(self.value)


class Harmonic(AbstractSchedule):
    """eta(t) = scale / (t + offset)."""

    references = ()

    scale: Numbers = number()
    offset: Numbers = number()

    def __check_init__(self) -> None:
        check_number("harmonic", scale=self.scale, offset=self.offset)
        if is_concrete((self.scale, self.offset)) and not (self.scale >= 0 and self.offset > 0):
            raise ValueError(f"harmonic needs scale >= 0 and offset > 0; got scale={self.scale}, offset={self.offset}.")

    def __call__(self, t: Int[Array, ""] | int) -> Float[Array, ""]:
        offset = jnp.asarray(self.offset)
        return jnp.asarray(self.scale) / (jnp.asarray(t).astype(offset.dtype) + offset)


class Power(AbstractSchedule):
    """eta(t) = scale / (t + offset)^power.

    power = 1/2 is what no-regret play over a bounded domain needs (Zinkevich 2003).

    Example:

        import performative as pf

        print([float(pf.schedules.Power(scale=0.1)(t)) for t in (0, 3, 99)])
    """

    references = ("zinkevich2003online",)

    scale: Numbers = number()
    power: Numbers = number(default=0.5)
    offset: Numbers = number(default=1.0)

    def __check_init__(self) -> None:
        check_number("Power", scale=self.scale, power=self.power, offset=self.offset)
        if is_concrete((self.scale, self.power, self.offset)) and not (
            self.scale >= 0 and self.power >= 0 and self.offset > 0
        ):
            raise ValueError(
                f"Power needs scale >= 0, power >= 0 and offset > 0; got scale={self.scale}, power={self.power}, "
                f"offset={self.offset}."
            )

    def __call__(self, t: Int[Array, ""] | int) -> Float[Array, ""]:
        offset = jnp.asarray(self.offset)
        later = jnp.asarray(t).astype(offset.dtype) + offset
        return jnp.asarray(self.scale) / later ** jnp.asarray(self.power, offset.dtype)


class Table(AbstractSchedule):
    """eta(t) = values[t // steps], with the last value from then on.

    If `steps` is the algorithm's local steps, this is one value per round.
    """

    references = ()

    values: Numbers = number()
    steps: int = whole(default=1)

    def __check_init__(self) -> None:
        check_finite("Table", values=self.values)
        check_counts(steps=self.steps)
        if np.ndim(self.values) != 1 or np.shape(self.values) == (0,):
            raise ValueError(f"Table: values must be a list of step sizes; got {self.values}.")
        if is_concrete(self.values) and np.any(np.asarray(self.values) < 0):
            raise ValueError(f"Table: values must not be negative; got {self.values}.")

    def __call__(self, t: Int[Array, ""] | int) -> Float[Array, ""]:
        return jnp.take(jnp.asarray(self.values), jnp.asarray(t) // self.steps, mode="clip")


def constant(value: ArrayLike) -> Constant:
    """eta(t) = value."""
    return Constant(value)


def harmonic(scale: ArrayLike, offset: ArrayLike) -> Harmonic:
    """eta(t) = scale / (t + offset)."""
    return Harmonic(scale, offset)


@checked
def theorem(
    assumptions: Assumptions, local_steps: int, scheme: str = "full", k: int | None = None, printed: bool = False
) -> Harmonic:
    """The step size that a convergence theorem of P-FedAvg allows: eta(t) = 2 / (mu_tilde (t + gamma)).

    Args:
        scheme: "full" (Theorem 3.1 of Jin et al. 2024), "one" (3.2) or "two" (3.3).
        k: Number of clients per round under "one" and "two".
        printed: Use the constants as printed in the paper; see `performative.theory.p_fedavg`.

    Safe and slow. A problem that the theorem does not cover raises an error with the violated preconditions.
    """
    found = p_fedavg(assumptions, local_steps, scheme, k, printed)
    if found.unmet:
        raise ValueError(f"Theorem {found.name} allows no step; unmet: {'; '.join(found.unmet)}.")
    return harmonic(found.beta, found.gamma)


def as_schedule(rate: Rate) -> Schedule:
    """A number means a constant step size; a schedule, or any function of t, is returned unchanged."""
    return rate if callable(rate) else Constant(rate)

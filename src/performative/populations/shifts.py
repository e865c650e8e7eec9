"""How the deployed model shifts every row of a client's table."""

from abc import abstractmethod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from performative._base.checks import check_finite
from performative.facts import AbstractPart, declared
from performative.populations.linear import react
from performative.types import Numbers, Theta, per_client

__all__ = ["AbstractShift", "Linear"]


class AbstractShift(AbstractPart):
    """s(theta), written for ONE client: the shift added to each of its rows."""

    @abstractmethod
    def __call__(self, theta: Theta) -> Float[Array, "..."]:
        """The shift under the deployed model theta, of a row's shape or one that broadcasts to it."""

    def slope(self) -> Any:
        """M if s(theta) = M theta: a number, [N], [N, d] or [N, d, k]; None if it is not linear."""
        return None

    def model_shape(self, row: tuple[int, ...]) -> tuple[int, ...] | None:
        """Shape of theta for rows of this shape, None if the shift does not determine it. Called on the whole part."""
        return None


class Linear(AbstractShift):
    """A shift proportional to the model.

        s_i(theta) = sensitivity_i * theta

    `sensitivity` is a number, [N] or [N, d] by coordinate, or [N, d, k]: a linear map from k parameters to rows of d.
    """

    references = ()

    sensitivity: Numbers = per_client()

    def __check_init__(self) -> None:
        check_finite("Linear", sensitivity=self.sensitivity)
        if self.sensitivity is None or np.ndim(self.sensitivity) > 3:
            raise ValueError(
                "Linear: sensitivity must be a number, [N], [N, d] or [N, d, k]; "
                f"got shape {np.shape(self.sensitivity)}."
            )

    def slope(self) -> Any:
        return self.sensitivity

    def __call__(self, theta: Theta) -> Array:
        return react(jnp.asarray(self.sensitivity), theta)

    def model_shape(self, row: tuple[int, ...]) -> tuple[int, ...]:
        return np.shape(self.sensitivity)[2:] if np.ndim(self.sensitivity) == 3 else row


def sensitivity_of(shift: AbstractShift | None) -> Any:
    """The slope that a shift declares, 0 if there is no shift, None if it is not linear."""
    return np.zeros(()) if shift is None else declared(shift, "slope")

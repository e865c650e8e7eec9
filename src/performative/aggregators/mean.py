"""Weighted averages of updates."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from performative._base.checks import is_one_of
from performative.aggregators.base import AbstractAggregator
from performative.participation.base import AbstractParticipation
from performative.types import Cohort, Theta, Upload


def weighted_sum(rows: PyTree, weight: Float[Array, " K"], active: Array | None = None) -> PyTree:
    """sum_k a_k row_k. Inactive rows are masked, so a NaN in them does not spread."""

    def add(v: Array) -> Array:
        if active is not None:
            v = jnp.where(active.reshape((-1,) + (1,) * (v.ndim - 1)), v, 0)
        # A matrix product at full precision: a plain sum over a million clients is a serial pass on a CPU.
        return jnp.tensordot(weight.astype(v.dtype), v, axes=1, precision="highest")

    return jax.tree.map(add, rows)


class Mean(AbstractAggregator[None]):
    """move = sum_k a_k delta_k, the weighted mean of updates.

    Unbiased under every scheme with E[a_i] = p_i, whether or not the weights of a round sum to one.

    `of="models"` is the form in the paper: theta <- sum_k a_k theta_k. If the a_k sum to one it is the same. If they do
    not (Scheme II with unequal p), each round multiplies the model by a random factor whose variance (N-K)(N sum p^2 -
    1)/(K(N-1)) does not shrink with the step, so it raises an error.
    """

    references = ("mcmahan2017communication",)
    ignores_data = True
    is_plain = True
    uses_sums_only = True

    of: str = eqx.field(static=True, default="updates")

    def __check_init__(self) -> None:
        if not is_one_of(self.of, "updates", "models"):
            raise ValueError(f'Mean: of must be "updates" or "models"; got {self.of!r}.')

    def aggregate(
        self, theta: Theta, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: None
    ) -> tuple[Theta, None]:
        total = weighted_sum(upload.delta, cohort.weight, cohort.active)
        return self.aggregate_sum(theta, total, upload, cohort, weights, memory)

    def needs_sums_only(self) -> bool:
        return True

    def sum_weights(
        self, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: None
    ) -> Float[Array, " K"]:
        return cohort.weight

    def aggregate_sum(
        self, theta: Theta, total: Theta, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: None
    ) -> tuple[Theta, None]:
        move = total
        if self.of == "models":
            excess = jnp.sum(cohort.weight) - 1
            move = jax.tree.map(lambda m, v: m + excess.astype(v.dtype) * v, move, theta)
        return move, memory

    def check(self, weights: np.ndarray, participation: AbstractParticipation) -> None:
        if self.of != "models" or participation.sums_to_one:
            return
        if not participation.sums_to_one_if_equal:
            raise ValueError(
                f'Mean(of="models") with {type(participation).__name__}: the weights of a round do not sum to one, and '
                'the model does not converge. Use Mean() (of="updates").'
            )
        if np.ptp(np.asarray(weights)) > 1e-12:
            raise ValueError(
                f'Mean(of="models") with {type(participation).__name__} needs equal weights: unequal ones of a round '
                'do not sum to one and the model does not converge. Use Mean() (of="updates"), or SchemeOne.'
            )

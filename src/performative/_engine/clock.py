"""Simulated time."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from performative._base.checks import check_finite, check_one_a_client
from performative.types import Cohort, is_concrete, number


class Clock(eqx.Module):
    """Simulated time: a local step takes client i `compute_i`, an exchange with the server `communication_i`.

        round = max over the cohort of (compute_i tau_i + communication_i) + the time that the server waited

    Both are scalars, or have one entry per client.
    """

    compute: Any = number(default=1.0)
    communication: Any = number(default=0.0)

    def __check_init__(self) -> None:
        for name in ("compute", "communication"):
            cost = getattr(self, name)
            check_finite("Clock", **{name: cost})
            if np.ndim(cost) > 1:
                raise ValueError(f"Clock: {name} must be a number, or one per client; got shape {np.shape(cost)}.")
            if is_concrete(cost) and np.any(np.asarray(cost) < 0):
                raise ValueError(f"Clock: {name} must not be negative; got {cost}.")

    def step(self, client: Array | None) -> Any:
        """The time that one local step takes this client."""
        if np.ndim(self.compute) == 0:
            return self.compute
        return jnp.take(self.compute, 0 if client is None else client, mode="clip")

    def time(self, ids: Array, steps: Float[Array, " K"]) -> Float[Array, " K"]:
        """The time that each client of a cohort takes."""

        def of(cost: Any) -> Any:
            return jnp.take(cost, ids, mode="clip") if np.ndim(cost) else cost

        return steps * of(self.compute) + of(self.communication)

    def lasts(
        self, cohort: Cohort, steps: Int[Array, " K"], dtype: DTypeLike, waits_only: bool = False
    ) -> Float[Array, ""]:
        """The duration of a round: that of the slowest client plus the server's waiting time; or only the latter."""
        if waits_only:
            return jnp.asarray(cohort.elapsed, dtype)
        took = self.time(cohort.ids, steps.astype(dtype))
        return jnp.asarray(jnp.max(jnp.where(cohort.present, took, 0)) + cohort.elapsed, dtype)

    def check(self, clients: int) -> None:
        """Raise if the costs are for another number of clients."""
        check_one_a_client("Clock: ", clients, compute=self.compute, communication=self.communication)

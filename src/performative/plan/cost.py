"""How a federation spends its time."""

from typing import Any

import equinox as eqx
import jax
import numpy as np

from performative._base.checks import check_finite
from performative.participation.first_k import FirstK
from performative.participation.latency import AbstractLatency
from performative.types import is_concrete, number

# Cohorts over which the time of a round is averaged if clients differ.
_DRAWS = 512


class Cost(eqx.Module):
    """The time a round takes: local steps, samples, communication with the server, stragglers.

        round = max over the cohort of (E (step_i + sample_i n) + communication_i + latency_i)

    Args:
        step, sample, communication: scalars, or one number per client
        latency: how long clients take to answer, such as pf.participation.Exponential(mean); None if they answer
            immediately. If set, `FirstK` is among the choices: everyone is asked, and the K with the smallest latency
            work. `run` simulates latencies only for FirstK; for other schemes its time omits them.
    """

    step: Any = number(default=1.0)
    sample: Any = number(default=0.0)
    communication: Any = number(default=10.0)
    latency: AbstractLatency | None = None

    def __check_init__(self) -> None:
        for name in ("step", "sample", "communication"):
            value = getattr(self, name)
            check_finite("Cost", **{name: value})
            if np.ndim(value) > 1 or (is_concrete(value) and np.any(np.asarray(value) < 0)):
                raise ValueError(f"Cost: {name} must be a number >= 0, or one per client; got {value}.")
        if self.latency is not None and not isinstance(self.latency, AbstractLatency):
            raise ValueError(
                "Cost: latency must be a distribution such as pf.participation.Exponential(mean); "
                f"got {self.latency!r}."
            )
        if not np.any(np.asarray(self.step)) and not np.any(np.asarray(self.sample)):
            raise ValueError(
                "Cost: step or sample must be above 0; otherwise local work is free and has no optimal amount."
            )

    def check(self, clients: int) -> None:
        """Raise if the costs are for a different number of clients."""
        for name in ("step", "sample", "communication"):
            if np.shape(getattr(self, name)) not in ((), (clients,)):
                raise ValueError(
                    f"Cost: {name} has shape {np.shape(getattr(self, name))} for {clients} clients; pass a "
                    "scalar, or one number per client."
                )
        if self.latency is not None:
            FirstK(1, self.latency).check(np.full(clients, 1.0 / clients))

    def round_time(self, scheme: str, k: int, steps: int, batch: int, weights: np.ndarray) -> float:
        """The mean time of a round; over fixed draws of cohorts if clients differ or latencies are random."""
        work = np.asarray(self.step) + np.asarray(self.sample) * batch
        each = steps * work + np.asarray(self.communication)
        if each.ndim == 0 and self.latency is None:
            return float(each)
        N = len(weights)
        each = np.broadcast_to(each, (_DRAWS, N)).astype(np.float64)
        waits = np.zeros_like(each) if self.latency is None else np.asarray(_latencies(self.latency, N))
        if scheme == "first":  # the first K have the smallest latencies; the server waits for the slowest of them
            first = np.argsort(waits, axis=1)[:, :k]
            last = np.take_along_axis(waits, first, axis=1)[:, -1]
            return float(np.mean(np.take_along_axis(each, first, axis=1).max(axis=1) + last))
        each = each + waits
        if scheme == "full":
            return float(np.mean(each[:, weights > 0].max(axis=1)))
        rng = np.random.default_rng(0)
        if scheme == "one":
            chosen = rng.choice(N, (_DRAWS, k), p=weights / weights.sum())
        else:
            chosen = np.argsort(rng.random((_DRAWS, N)), axis=1)[:, :k]
        return float(np.mean(np.take_along_axis(each, chosen, axis=1).max(axis=1)))


@eqx.filter_jit
def _latencies(latency: AbstractLatency, clients: int) -> Any:
    """The same draws at each call, [draws, N]."""
    return jax.vmap(lambda key: latency.draw(key, clients))(jax.random.split(jax.random.key(0), _DRAWS))

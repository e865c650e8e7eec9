"""Remember each client's last update, to reduce the variance of partial participation."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from performative._base.client_axis import put_rows, take_rows
from performative.aggregators.base import AbstractAggregator
from performative.aggregators.mean import weighted_sum
from performative.types import Cohort, Theta, Upload


class VarpMemory(eqx.Module):
    """The last update of each client [N, ...], and their weighted mean, kept up to date."""

    last: PyTree
    mean: Theta


class Varp(AbstractAggregator[VarpMemory]):
    """FedVARP: the mean of updates, with the last known one in place of those of absent clients.

        move = sum_k a_k (delta_k - y_k) + sum_i p_i y_i,      then y_k <- delta_k for the participants

    It removes the variance of partial participation, not the drift of local steps. Jhunjhunwala et al. 2022. The server
    keeps one update per client; a round still costs K. The largest stable step is smaller than that of `Mean`: with one
    of N clients per round about half. The mean of the y is a running sum: in float32 the rounding errors of the first,
    large updates stay in it (about 1e-5 of the initial distance, measured at N = 10). If that matters use
    dtype="float64", or ClusterVarp(N), which recomputes the sum.
    """

    references = ("jhunjhunwala2022fedvarp",)
    ignores_data = True

    def init(self, theta: Theta, clients: int, extra: dict[str, PyTree]) -> VarpMemory:
        last = jax.tree.map(lambda leaf: jnp.zeros((clients, *leaf.shape), leaf.dtype), theta)
        return VarpMemory(last, jax.tree.map(jnp.zeros_like, theta))

    def aggregate(
        self, theta: Theta, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: VarpMemory
    ) -> tuple[Theta, VarpMemory]:
        news = jax.tree.map(jnp.subtract, upload.delta, take_rows(memory.last, cohort.ids))
        surprise = weighted_sum(news, cohort.weight, cohort.active)
        share: Array = jnp.take(weights, cohort.ids, mode="clip")
        learned = weighted_sum(news, share, cohort.active)
        move = jax.tree.map(jnp.add, surprise, memory.mean)
        mean = jax.tree.map(jnp.add, memory.mean, learned)
        # If everyone computes, absent clients have rows too, but these were never sent.
        ids = cohort.ids if cohort.active is None else jnp.where(cohort.active, cohort.ids, weights.shape[0])
        return move, VarpMemory(put_rows(memory.last, ids, upload.delta), mean)

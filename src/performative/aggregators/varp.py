"""Remember what each client sent last, so that who happens to take part matters less."""

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
    """FedVARP: the mean of updates, with the last known one standing in for clients that sit out.

        move = sum_k a_k (delta_k - y_k) + sum_i p_i y_i,      then y_k <- delta_k for those who took part

    It takes the variance of partial participation away, not the drift of local steps. Jhunjhunwala et al. 2022.
    The server keeps one update a client; a round still costs K. The largest step that settles is smaller than that of
    `Mean`: with one client of N a round about half. The mean of the y is a running sum: in float32 the rounding of the
    first, large updates stays in it for good (about 1e-5 of the start's distance, measured at N = 10). Where that
    counts use dtype="float64", or ClusterVarp(N), which adds up anew.
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
        learnt = weighted_sum(news, share, cohort.active)
        move = jax.tree.map(jnp.add, surprise, memory.mean)
        mean = jax.tree.map(jnp.add, memory.mean, learnt)
        # Where everyone computes, absent clients have rows too: what stands there was never sent.
        ids = cohort.ids if cohort.active is None else jnp.where(cohort.active, cohort.ids, weights.shape[0])
        return move, VarpMemory(put_rows(memory.last, ids, upload.delta), mean)

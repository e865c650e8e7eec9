"""FedVARP with one memory per cluster of clients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from performative._base.checks import check_counts
from performative.aggregators.base import AbstractAggregator
from performative.aggregators.mean import weighted_sum
from performative.participation.base import AbstractParticipation
from performative.types import ArrayLike, Cohort, Counts, Theta, Upload, as_numbers, is_concrete


class ClusterVarp(AbstractAggregator[Theta]):
    """ClusterFedVARP: the last mean update of a cluster replaces those of its absent clients.

        move = sum_k a_k (delta_k - y_c(k)) + sum_c p_c y_c,      p_c = sum of p_i in c
        then y_c <- the mean of delta_k over the members that took part, by a_k; unchanged if none did

    Args:
        clusters: a count C (client i belongs to i modulo C), or one cluster index 0, 1, ... per client.

    The server keeps C updates instead of `Varp`'s N. C = N is Varp. Unbiased whatever the clusters. It removes the
    variance between clusters; dissimilar members spoil their common memory, and its variance can then exceed that of
    `Mean`. Besides its K updates a round sums the N weights. Jhunjhunwala et al. 2022, Section 4.
    """

    references = ("jhunjhunwala2022fedvarp",)
    ignores_data = True

    count: int = eqx.field(static=True)
    member: Counts | None

    def __init__(self, clusters: ArrayLike):
        if np.ndim(as_numbers(clusters)) == 0:
            check_counts(**{"ClusterVarp: clusters": clusters})
            self.count, self.member = int(np.asarray(clusters)), None
            return
        member = np.asarray(clusters)
        if member.ndim != 1 or member.dtype.kind not in "iu" or member.min(initial=0) < 0 or not len(member):
            raise ValueError(
                "ClusterVarp: clusters must be a count, or a list with the cluster 0, 1, ... of each client; "
                f"got {clusters!r}."
            )
        self.count, self.member = int(member.max()) + 1, member.astype(np.int32)

    def init(self, theta: Theta, clients: int, extra: dict[str, PyTree]) -> Theta:
        return jax.tree.map(lambda leaf: jnp.zeros((self.count, *leaf.shape), leaf.dtype), theta)

    def aggregate(
        self, theta: Theta, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: Theta
    ) -> tuple[Theta, Theta]:
        here = cohort.present
        mine = jnp.where(here, self._cluster_of(cohort.ids), self.count)  # past the end: dropped
        news = jax.tree.map(lambda d, y: d - jnp.take(y, mine, axis=0, mode="clip"), upload.delta, memory)
        everyone = self._cluster_of(jnp.arange(weights.shape[0], dtype=jnp.int32))
        share = jnp.zeros(self.count, weights.dtype).at[everyone].add(weights)
        move = jax.tree.map(jnp.add, weighted_sum(news, cohort.weight, here), weighted_sum(memory, share))

        came = jnp.zeros(self.count, cohort.weight.dtype).at[mine].add(cohort.weight, mode="drop")

        def learn(y: Array, delta: Array) -> Array:
            rows = (slice(None), *(None,) * (delta.ndim - 1))
            weighed = jnp.where(here[rows], delta, 0) * cohort.weight.astype(delta.dtype)[rows]
            total = jnp.zeros_like(y).at[mine].add(weighed, mode="drop")
            mass = came.astype(y.dtype)[rows]
            return jnp.where(mass > 0, total / jnp.where(mass > 0, mass, 1), y)

        return move, jax.tree.map(learn, memory, upload.delta)

    def check(self, weights: np.ndarray, participation: AbstractParticipation) -> None:
        if self.member is not None and len(self.member) != len(weights):
            raise ValueError(
                f"ClusterVarp: clusters names the cluster of {len(self.member)} clients; there are {len(weights)}."
            )
        if self.member is not None and is_concrete(self.member):
            empty = np.setdiff1d(np.arange(self.count), np.asarray(self.member))
            if len(empty):
                raise ValueError(f"ClusterVarp: no client belongs to cluster {empty[0]}; number them 0, 1, ...")
        if self.count > len(weights):
            raise ValueError(f"ClusterVarp(clusters={self.count}) has only {len(weights)} clients to group.")

    def _cluster_of(self, ids: Int[Array, " K"]) -> Int[Array, " K"]:
        if self.member is None:
            return ids % self.count
        return jnp.take(jnp.asarray(self.member), ids, mode="clip")

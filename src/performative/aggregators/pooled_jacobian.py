"""The server learns df/dtheta for clients that see too little to learn it alone."""

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from performative.aggregators.base import AbstractAggregator
from performative.aggregators.mean import Mean, weighted_sum
from performative.errors import check_counts
from performative.reaction import Moments, SharedReaction
from performative.types import Cohort, Memory, Numbers, Theta, Upload, number, whole


class PooledMemory(eqx.Module):
    shared: SharedReaction
    inner: Memory


class PooledJacobian(AbstractAggregator):
    """Estimate df/dtheta from the windows of all clients, and send it back with the model.

        df/dtheta = [df_1 ... df_K] pinv [dtheta_1 ... dtheta_K]
                  = (sum_k df_k dtheta_k^T) pinv(sum_k dtheta_k dtheta_k^T)

    Clients send the two sums of their window, not its entries. Differences take out what clients differ in by a
    constant; with `clusters` > 1 clients whose maps differ in slope are kept apart: the server groups their own
    estimates by k-means (scikit-learn, each round from the last centres), and a client takes the estimate that fits its
    own window best. Zheng et al. 2024, Sections 4 and 5.3. The move itself is `inner`'s.

    It needs an estimator that watches the reaction, `Performative(window=H)`. k-means runs on the host, once a round.
    """

    inner: AbstractAggregator = Mean()
    clusters: int = whole(default=1)
    rtol: Numbers = number(default=1e-2)

    def __check_init__(self) -> None:
        if not isinstance(self.inner, AbstractAggregator):
            raise ValueError(f"PooledJacobian: inner must be an aggregator such as Mean(); got {self.inner!r}.")
        check_counts(**{"PooledJacobian: clusters": self.clusters})

    def init(self, theta: Theta, clients: int, extra: dict[str, PyTree]) -> Memory:
        if "reaction" not in extra:
            raise ValueError(
                "PooledJacobian needs clients that watch how their data react; use it with the estimator "
                "Performative(window=H), as pf.pofl and pf.profl have it."
            )
        moments, _ = extra["reaction"]
        empty = jnp.zeros((self.clusters, *moments.cross.shape), moments.cross.dtype)
        shared = SharedReaction(empty, jnp.zeros(self.clusters, bool))
        return PooledMemory(shared, self.inner.init(theta, clients, extra))

    def broadcast(self, memory: Memory) -> dict[str, PyTree]:
        return {**self.inner.broadcast(memory.inner), "reaction": memory.shared}

    def aggregate(
        self, theta: Theta, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: Memory
    ) -> tuple[Theta, Memory]:
        move, inside = self.inner.aggregate(theta, upload, cohort, weights, memory.inner)
        moments, ready = upload.extra["reaction"]
        if cohort.active is not None:
            ready &= cohort.active
        moments = jax.tree.map(lambda rows: jnp.where(ready[:, None, None], rows, 0), moments)
        shared = self._pool(moments, self._labels(moments, ready, memory.shared), ready, memory.shared)
        return move, PooledMemory(shared, inside)

    def check(self, weights: Any, participation: Any) -> None:
        self.inner.check(weights, participation)

    def _pool(
        self, moments: Moments, label: Int[Array, " K"], ready: Bool[Array, " K"], before: SharedReaction
    ) -> SharedReaction:
        """One estimate a cluster; a cluster of which nobody came keeps its last one."""

        def one(cluster: Array, old: Array, known: Array) -> tuple[Array, Array]:
            mine = (label == cluster) & ready
            sums = weighted_sum(moments, mine.astype(moments.cross.dtype))
            new, _ = sums.jacobian(self.rtol)
            return jnp.where(jnp.any(mine), new, old), known | jnp.any(mine)

        clusters = jnp.arange(self.clusters, dtype=label.dtype)
        return SharedReaction(*jax.vmap(one)(clusters, before.jacobian, before.known))

    def _labels(self, moments: Moments, ready: Bool[Array, " K"], before: SharedReaction) -> Int[Array, " K"]:
        if self.clusters == 1:
            return jnp.zeros(ready.shape, jnp.int32)
        own = jax.vmap(lambda m: m.jacobian(self.rtol)[0])(moments)
        return jax.pure_callback(
            similar_clients,
            jax.ShapeDtypeStruct(ready.shape, jnp.int32),
            own.reshape(len(own), -1),
            ready,
            before.jacobian.reshape(self.clusters, -1),
            before.known,
            vmap_method="broadcast_all",
        )


def similar_clients(maps: Any, ready: Any, centres: Any, known: Any) -> np.ndarray:
    """k-means labels [..., K] of clients' maps [..., K, p], around the last centres [..., C, p] where all are known."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    maps, ready, centres, known = (np.asarray(value) for value in (maps, ready, centres, known))
    labels = np.zeros(ready.shape, np.int32)
    clusters = centres.shape[-2]
    for at in np.ndindex(*ready.shape[:-1]):
        rows = maps[at][ready[at]].astype(np.float64)
        if len(rows) < clusters or not np.all(np.isfinite(rows)):
            continue
        started = bool(known[at].all()) and np.all(np.isfinite(centres[at]))
        kmeans = KMeans(
            clusters,
            init=centres[at].astype(np.float64) if started else "k-means++",
            n_init=1 if started else 10,
            random_state=0,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different maps than clusters
            labels[at][ready[at]] = kmeans.fit_predict(rows)
    return labels

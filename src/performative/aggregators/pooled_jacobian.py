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
from performative.errors import check_counts, check_finite
from performative.reaction import Moments, SharedReaction, Sighting, Window
from performative.types import Cohort, Memory, Numbers, Theta, Upload, number, whole


class PooledMemory(eqx.Module):
    """The pairs (theta_r, f_r) that each cluster saw last, the estimates made of them, and the inner rule's memory."""

    seen: Window
    shared: SharedReaction
    inner: Memory


class PooledJacobian(AbstractAggregator):
    """Estimate df/dtheta from what all clients saw in the last rounds, and send it back with the model.

        df/dtheta = Cov(f_r, theta_r) pinv(Cov(theta_r))      over the last `memory` rounds r

    theta_r is the mean model that the cohort began round r with, f_r the mean of its clients' f-hat in that round. The
    noise of f-hat averages out over clients, and the baseline is longer than a client's window. Clients send their
    mean f-hat, never samples.

    clusters: with more than one, clients whose maps differ in slope are kept apart. The server groups their own
              estimates by k-means (scikit-learn, on the host, each round from the last centres); a client takes the
              estimate that fits its own window best.
    memory:   how many rounds count. Longer averages more noise away; shorter follows a map that bends.
    Zheng et al. 2024, Sections 4 and 5.3, which leave the estimate itself open. The move is `inner`'s. It needs the
    estimator `Performative(window=H)`. Where few of many clients come, differences between cohorts add noise.
    """

    inner: AbstractAggregator = Mean()
    clusters: int = whole(default=1)
    memory: int = whole(default=100)
    rtol: Numbers = number(default=1e-2)

    def __check_init__(self) -> None:
        if not isinstance(self.inner, AbstractAggregator):
            raise ValueError(f"PooledJacobian: inner must be an aggregator such as Mean(); got {self.inner!r}.")
        check_counts(**{"PooledJacobian: clusters": self.clusters, "PooledJacobian: memory": self.memory})
        check_finite("PooledJacobian", rtol=self.rtol)

    def init(self, theta: Theta, clients: int, extra: dict[str, PyTree]) -> Memory:
        if "reaction" not in extra:
            raise ValueError(
                "PooledJacobian needs clients that watch how their data react; use it with the estimator "
                "Performative(window=H), as pf.pofl and pf.profl have it."
            )
        told, clusters = extra["reaction"], self.clusters
        nothing = jnp.zeros((clusters, *told.window.cross.shape), told.window.cross.dtype)
        shared = SharedReaction(nothing, jnp.zeros(clusters, bool))
        empty = Window.empty(self.memory, told.model, told.parameters)
        seen = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (clusters, *leaf.shape)), empty)
        return PooledMemory(seen, shared, self.inner.init(theta, clients, extra))

    def broadcast(self, memory: Memory) -> dict[str, PyTree]:
        return {**self.inner.broadcast(memory.inner), "reaction": memory.shared}

    def aggregate(
        self, theta: Theta, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: Memory
    ) -> tuple[Theta, Memory]:
        move, inside = self.inner.aggregate(theta, upload, cohort, weights, memory.inner)
        told: Sighting = upload.extra["reaction"]
        here = jnp.ones(told.ready.shape, bool) if cohort.active is None else cohort.active
        label = self._labels(told.window, told.ready & here, memory.shared)

        def one(cluster: Array, seen: Window, old: Array, known: Array) -> tuple[Window, Array, Array]:
            mine = here & (label == cluster)
            share = mine.astype(told.model.dtype) / jnp.maximum(jnp.sum(mine), 1).astype(told.model.dtype)
            model, parameters = weighted_sum((told.model, told.parameters), share, mine)
            longer = seen.write(model, parameters, seen.count)
            seen = jax.tree.map(lambda new, old: jnp.where(jnp.any(mine), new, old), longer, seen)
            new, _ = seen.around_mean().jacobian(self.rtol)
            came = jnp.any(mine & told.ready)
            return seen, jnp.where(came, new, old), known | came

        clusters = jnp.arange(self.clusters, dtype=label.dtype)
        seen, new, known = jax.vmap(one)(clusters, memory.seen, memory.shared.jacobian, memory.shared.known)
        return move, PooledMemory(seen, SharedReaction(new, known), inside)

    def check(self, weights: Any, participation: Any) -> None:
        self.inner.check(weights, participation)

    def _labels(self, windows: Moments, ready: Bool[Array, " K"], before: SharedReaction) -> Int[Array, " K"]:
        if self.clusters == 1:
            return jnp.zeros(ready.shape, jnp.int32)
        own = jax.vmap(lambda m: m.jacobian(self.rtol)[0])(windows)
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

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
from performative.reaction import Rounds, SharedReaction, Sighting
from performative.types import Cohort, Memory, Numbers, Theta, Upload, is_concrete, masked_mean, number, whole


class PooledMemory(eqx.Module):
    """The rounds that each cluster saw last, what was made of them, the clusters' centres, and `inner`'s memory."""

    seen: Rounds
    shared: SharedReaction
    centres: Float[Array, "C p"]
    inner: Memory


class PooledJacobian(AbstractAggregator):
    """Estimate df/dtheta from what all clients saw in the last rounds, and send it back with the model.

        df/dtheta = Cov(f_r, start_r) pinv(Cov(theta_r, start_r))      over the last `memory` rounds r

    start_r is the model that round r began with, theta_r and f_r the means of the cohort's models and f-hat in it, by
    the weights of the round. The noise of f-hat averages out over clients, and the baseline is longer than a client's
    window. Clients send means, never samples.

    clusters: with more than one, clients whose maps differ in slope are kept apart. The server groups their own
              estimates by k-means (scikit-learn, on the host) once as many as that have a full window; who comes later
              joins the nearest centre. A client stays where it is.
    memory:   how many rounds count. Longer averages more noise away; shorter follows a map that bends.
    Zheng et al. 2024, Sections 4 and 5.3, which leave the estimate itself open. The move is `inner`'s. It needs the
    estimator `Performative(window=H)`.
    It needs cohorts that are alike: where only some clients come and their levels of f differ, who came passes for
    reaction. With `clusters` and partial participation that spoils the slopes, and a warning says so.
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
        if is_concrete(self.rtol) and not (self.rtol is not None and np.all(self.rtol >= 0) and np.all(self.rtol < 1)):
            raise ValueError(f"PooledJacobian: rtol must lie in [0, 1); got {self.rtol}.")

    def init(self, theta: Theta, clients: int, extra: dict[str, PyTree]) -> Memory:
        if "reaction" not in extra:
            raise ValueError(
                "PooledJacobian needs clients that watch how their data react; use it with the estimator "
                "Performative(window=H), as pf.pofl and pf.profl have it."
            )
        told, clusters = extra["reaction"], self.clusters
        (m, d), dtype = told.window.cross.shape, told.window.cross.dtype
        if self.memory <= d:
            raise ValueError(f"PooledJacobian: memory={self.memory} rounds cannot tell how data follow {d} parameters.")
        seen = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (clusters, *leaf.shape)), Rounds.empty(self.memory, told)
        )
        label = None if clusters == 1 else jnp.full(clients, -1, jnp.int32)
        shared = SharedReaction(jnp.zeros((clusters, m, d), dtype), jnp.zeros(clusters, bool), label)
        centres = jnp.full((clusters, m * d), jnp.nan, dtype)
        return PooledMemory(seen, shared, centres, self.inner.init(theta, clients, extra))

    def broadcast(self, memory: Memory) -> dict[str, PyTree]:
        return {**self.inner.broadcast(memory.inner), "reaction": memory.shared}

    def aggregate(
        self, theta: Theta, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: Memory
    ) -> tuple[Theta, Memory]:
        move, inside = self.inner.aggregate(theta, upload, cohort, weights, memory.inner)
        told: Sighting = upload.extra["reaction"]
        here = jnp.ones(told.ready.shape, bool) if cohort.active is None else cohort.active
        label, centres = self._group(told, cohort, here, memory)
        mine_now = jnp.zeros(here.shape, jnp.int32) if label is None else jnp.take(label, cohort.ids, mode="clip")
        enough = min(2 * told.start.shape[1], self.memory - 1)

        def one(cluster: Array, seen: Rounds, old: Array, known: Array) -> tuple[Rounds, Array, Array]:
            mine = here & (mine_now == cluster)
            share = jnp.where(mine, cohort.weight, 0)
            share = share / jnp.where(jnp.sum(share) > 0, jnp.sum(share), 1)
            means = weighted_sum((told.start, told.model, told.parameters), share, mine)
            came = jnp.sum(share) > 0
            seen = jax.tree.map(lambda new, old: jnp.where(came, new, old), seen.write(*means), seen)
            sure = came & jnp.any(mine & told.ready) & (seen.count > enough)
            return seen, jnp.where(sure, seen.jacobian(self.rtol), old), known | sure

        clusters = jnp.arange(self.clusters, dtype=jnp.int32)
        seen, new, known = jax.vmap(one)(clusters, memory.seen, memory.shared.jacobian, memory.shared.known)
        return move, PooledMemory(seen, SharedReaction(new, known, label), centres, inside)

    def levels(self, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: Memory) -> dict[str, Array]:
        return self.inner.levels(upload, cohort, weights, memory.inner)

    def check(self, weights: Any, participation: Any) -> None:
        self.inner.check(weights, participation)
        if self.clusters > len(weights):
            raise ValueError(f"PooledJacobian(clusters={self.clusters}) has only {len(weights)} clients to group.")
        if self.clusters > 1 and not participation.everyone:
            warnings.warn(
                f"PooledJacobian(clusters={self.clusters}) with {type(participation).__name__}: the clients of a "
                "cluster that come differ from round to round, which passes for reaction. Use Full() or clusters=1.",
                UserWarning,
                stacklevel=2,
            )

    def _group(
        self, told: Sighting, cohort: Cohort, here: Bool[Array, " K"], memory: PooledMemory
    ) -> tuple[Int[Array, " N"] | None, Float[Array, "C p"]]:
        """Every client's cluster, None where there is but one, and the clusters' centres."""
        label, centres = memory.shared.label, memory.centres
        if label is None:
            return None, centres
        own = jax.vmap(lambda m: m.jacobian(self.rtol)[0].reshape(-1))(told.window)
        before = jnp.take(label, cohort.ids, mode="clip")
        new = here & told.ready & (before < 0)
        shape = jax.ShapeDtypeStruct(before.shape, jnp.int32)
        found = jax.pure_callback(assign, shape, own, new, centres, vmap_method="broadcast_all")

        def centre(cluster: Array, old: Array) -> Array:
            mine = new & (found == cluster)
            return jnp.where(jnp.isnan(old) & jnp.any(mine), masked_mean(own, mine), old)

        centres = jax.vmap(centre)(jnp.arange(self.clusters, dtype=jnp.int32), centres)
        return label.at[cohort.ids].set(jnp.where(new, found, before), mode="drop"), centres


def assign(maps: Any, new: Any, centres: Any) -> np.ndarray:
    """Clusters [..., K] of the new ones among clients' maps [..., K, p]; -1 for the others.

    As long as there are no centres [..., C, p] (NaN) k-means groups them, once there are as many as clusters. After
    that the nearest centre counts.
    """
    maps, new, centres = (np.asarray(value) for value in (maps, new, centres))
    labels = np.full(new.shape, -1, np.int32)
    for at in np.ndindex(*new.shape[:-1]):
        rows = maps[at][new[at]].astype(np.float64)
        if len(rows) == 0 or not np.all(np.isfinite(rows)):
            continue
        if np.all(np.isfinite(centres[at])):
            apart = np.linalg.norm(rows[:, None] - centres[at].astype(np.float64), axis=-1)
            labels[at][new[at]] = np.argmin(apart, axis=1)
        elif len(rows) >= len(centres[at]):
            labels[at][new[at]] = _k_means(rows, len(centres[at]))
    return labels


def _k_means(rows: np.ndarray, clusters: int) -> np.ndarray:
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different maps than clusters
        return KMeans(clusters, n_init=10, random_state=0).fit_predict(rows)

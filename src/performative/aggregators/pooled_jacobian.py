"""The server helps clients that have too little data to learn df/dtheta alone."""

import functools
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from performative._base.checks import check_counts, check_number
from performative._base.messages import coded
from performative._base.reaction import Moments, SharedReaction, Sighting
from performative.aggregators.alike import Comparison
from performative.aggregators.base import AbstractAggregator, AbstractWrapper
from performative.aggregators.mean import Mean, weighted_sum
from performative.participation.base import AbstractParticipation
from performative.types import ArrayLike, Cohort, Numbers, Theta, Upload, is_concrete, number, whole

# Number of steps that the server's df/dtheta is worth: enough to regularize a client's first estimates (after ten steps
# both have equal weight), and soon negligible (1% after a thousand).
_PRIOR = 10.0
_OFF = 0.1  # of the second term: beyond this possible error, the estimate is unverified
_SMALL = 0.01  # of the second term: a smaller error is harmless
_CHANCE = 1e-4  # probability of a false alarm


class PooledMemory(eqx.Module):
    """The moments of each cluster, the number of rounds with reports from it, its df/dtheta, and `inner`'s memory."""

    moments: Moments
    heard: Int[Array, " C"]
    jacobian: Float[Array, "C m d"]
    inner: PyTree


class PooledJacobian(AbstractWrapper[PooledMemory]):
    """Let every client learn df/dtheta from its whole past, regularized towards the clients' pooled estimate.

        J   = sum_i p_i cross_i pinv(sum_i p_i gram_i)                         the server's, sent with the model
        J_i = J + a_i (cross_i - J gram_i) pinv(a_i gram_i + (1 - a_i) sum_k p_k gram_k)
        a_i = t_i / (t_i + 10),      gram_i, cross_i: moments of client i's models and f-hat over its t_i steps

    A client's past goes back much further than its window, so its J_i has less noise; J is used while it has seen
    little, and a_i -> 1. Clients send means, never samples. Why not J for all? Its second term is J^T sum_i p_i s_i,
    which misses Cov(J_i, s_i). For the squared loss of a mean s_i = -(gradient i), and the sum is (1 - J)^T times the
    plain gradient: it converges to the stable point, however much clients react.

    Args:
        alike: True gives all clients of a cluster its J. Far less noise, but correct only if they react alike, or if
            s_i is the same for all (a price times a demand); warnings after a run report if neither holds, or if the
            run cannot tell.
        clusters: if more than one, each has its own J. The server groups the clients' own estimates by k-means
            (scikit-learn, on the host) once that many have a full window; from then on a client is assigned to the
            cluster that best explains its f-hat.
        memory: number of rounds to remember, to track a changing world; None for all rounds.

    For absent clients the server uses what they sent last, through a mean over as many rounds as it takes to hear from
    all. The move is `inner`'s. It needs the estimator `Performative(window=H)`. Zheng et al. 2024, Sections 4 and 5.3,
    which leave the estimate itself open.
    """

    references = ("zheng2024profl",)
    ignores_data = True

    inner: AbstractAggregator = Mean()
    clusters: int = whole(default=1)
    memory: int | None = whole(default=None)
    rtol: Numbers = number(default=1e-2)
    alike: bool = whole(default=False)

    def __check_init__(self) -> None:
        if not isinstance(self.alike, bool):
            raise ValueError(f"PooledJacobian: alike must be True or False; got {self.alike!r}.")
        check_counts(**{"PooledJacobian: clusters": self.clusters})
        if self.memory is not None:
            check_counts(**{"PooledJacobian: memory": self.memory})
        check_number("PooledJacobian", rtol=self.rtol)
        if is_concrete(self.rtol) and not 0 <= self.rtol < 1:
            raise ValueError(f"PooledJacobian: rtol must lie in [0, 1); got {self.rtol}.")

    def init(self, theta: Theta, clients: int, extra: dict[str, PyTree]) -> PooledMemory:
        if "reaction" not in extra:
            raise ValueError(
                "PooledJacobian needs clients that track how their data react; use it with the estimator "
                "Performative(window=H), as in pf.pofl and pf.profl."
            )
        told, clusters = extra["reaction"].seen.moments, self.clusters
        (m, d), dtype = told.cross.shape, told.cross.dtype
        if self.memory is not None and self.memory <= d:
            raise ValueError(f"PooledJacobian: memory={self.memory} rounds cannot tell how data follow {d} parameters.")
        moments = Moments(jnp.zeros((clusters, d, d), told.gram.dtype), jnp.zeros((clusters, m, d), dtype))
        heard = jnp.zeros(clusters, jnp.int32)
        return PooledMemory(moments, heard, jnp.zeros_like(moments.cross), self.inner.init(theta, clients, extra))

    def broadcast(self, memory: PooledMemory) -> dict[str, PyTree]:
        return {**self.inner.broadcast(memory.inner), "reaction": self.shared(memory)}

    def shared(self, memory: PooledMemory) -> SharedReaction:
        """What clients receive about df/dtheta."""

        def scalar(value: float) -> Array:
            return jnp.asarray(value, memory.jacobian.dtype)

        trust, pace = 0.0 if self.alike else 1 / _PRIOR, 0.0 if self.memory is None else 1 / self.memory
        known = memory.heard > 0
        return SharedReaction(memory.jacobian, memory.moments.gram, known, scalar(trust), scalar(pace))

    def aggregate(
        self, theta: Theta, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: PooledMemory
    ) -> tuple[Theta, PooledMemory]:
        move, inside = self.inner.aggregate(theta, upload, cohort, weights, memory.inner)
        told: Sighting = upload.extra["reaction"]
        here = told.ready if cohort.active is None else told.ready & cohort.active
        label = self._group(told, here, self.shared(memory))
        # Absent clients count with their last report: the mean runs over about as many rounds as it takes to hear from
        # all.
        news = jnp.sum(jnp.where(here, jnp.take(weights, cohort.ids, mode="clip"), 0))

        def one(cluster: Array, kept: Moments, heard: Array, old: Array) -> tuple[Moments, Array, Array]:
            mine = here & (label == cluster)
            share = jnp.where(mine, cohort.weight, 0)
            came = jnp.sum(share) > 0
            mean = weighted_sum(told.seen.moments, share / jnp.where(came, jnp.sum(share), 1), mine)
            pace = jnp.clip(news, 1 / (heard + 1).astype(news.dtype), 1)

            def learn(now: Array, before: Array) -> Array:
                return jnp.where(came, before + pace.astype(now.dtype) * (now - before), before)

            kept = jax.tree.map(learn, mean, kept)
            return kept, jnp.where(came, heard + 1, heard), jnp.where(came, kept.jacobian(self.rtol)[0], old)

        clusters = jnp.arange(self.clusters, dtype=jnp.int32)
        learned = jax.vmap(one)(clusters, memory.moments, memory.heard, memory.jacobian)
        return move, PooledMemory(*learned, inside)

    def check(self, weights: np.ndarray, participation: AbstractParticipation) -> None:
        super().check(weights, participation)
        if self.clusters > len(weights):
            raise ValueError(f"PooledJacobian(clusters={self.clusters}) has only {len(weights)} clients to group.")
        size = participation.size(len(weights))
        if self.clusters > size:
            raise ValueError(
                f"PooledJacobian(clusters={self.clusters}) groups clients of one round, of which "
                f"{type(participation).__name__} has {size}; use more of them, or fewer clusters."
            )

    def review(self, memory: PooledMemory, clients: PyTree, weights: Array | np.ndarray) -> list[str]:
        notes = super().review(memory, clients, weights)
        if not self.alike or len(weights) == 1:
            return notes
        found = Comparison.of(memory.jacobian, np.asarray(memory.heard) > 0, clients, weights)
        kind = "all clients" if self.clusters == 1 else f"the clients of each of {self.clusters} clusters"
        said = f"PooledJacobian(alike=True) gives {kind} one df/dtheta"
        if found.chance < _CHANCE and found.off > _SMALL:
            text = (
                f"{said}, but they react differently: the reaction's contribution to the gradient is off by about "
                f"{_percent(found.off)}. The model misses the optimal point. Use alike=False."
            )
            return [*notes, coded("clients-react-differently", text)]
        if not found.bound <= _OFF:
            text = (
                f"{said}, and this run cannot tell whether they react alike: the reaction's contribution to the "
                f"gradient may be off by up to {_percent(found.bound)}. If they do not, the model misses the optimal "
                "point. Use alike=False to be safe in both cases, with more noise."
            )
            return [*notes, coded("alike-not-tested", text)]
        return notes

    def _group(self, told: Sighting, here: Bool[Array, " K"], shared: SharedReaction) -> Int[Array, " K"]:
        """The cluster of each client of the cohort, -1 if there are none yet."""
        if self.clusters == 1:
            return jnp.zeros(here.shape, jnp.int32)
        own = jax.vmap(lambda seen: seen.moments.jacobian(self.rtol)[0].reshape(-1))(told.seen)
        shape = jax.ShapeDtypeStruct(here.shape, jnp.int32)
        grouped = jnp.any(shared.known)
        split = functools.partial(first_groups, clusters=self.clusters)
        first = jax.pure_callback(split, shape, own, here & ~grouped, vmap_method="broadcast_all")
        return jnp.where(grouped, jax.vmap(shared.nearest)(told.seen), first)


def _percent(part: float) -> str:
    return f"{100 * part:.0f}%" if part < 10 else "any amount"


def first_groups(maps: ArrayLike, new: ArrayLike, clusters: int) -> np.ndarray:
    """Clusters [..., K] of the marked rows of clients' maps [..., K, p], by k-means; -1 if they are too few."""
    maps, new = np.asarray(maps), np.asarray(new)
    labels = np.full(new.shape, -1, np.int32)
    for at in np.ndindex(*new.shape[:-1]):
        rows = maps[at][new[at]].astype(np.float64)
        if len(rows) >= clusters and np.all(np.isfinite(rows)):
            labels[at][new[at]] = _k_means(rows, clusters)
    return labels


def _k_means(rows: np.ndarray, clusters: int) -> np.ndarray:
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct maps than clusters
        return KMeans(clusters, n_init=10, random_state=0).fit_predict(rows)

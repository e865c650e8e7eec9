"""Steps on data collected under the last few models, not only the last one."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PyTree

from performative._base.checks import check_counts, check_finite, check_rule
from performative._base.noise import draws_nothing
from performative.estimators.base import AbstractEstimator
from performative.estimators.minibatch import batch_gradient, count_samples
from performative.populations.base import AbstractPopulation, collect
from performative.types import Batch, Estimate, Local, Loss, Noise, Numbers, Scene, Theta, is_concrete, number, whole


class Kept(eqx.Module):
    """Rows of the last k data sets, newest first, which of them are filled, and the model of the newest."""

    z: PyTree
    there: Bool[Array, "k rows"]
    model: Float[Array, " d"]


class Snapshots(AbstractEstimator[Kept]):
    """The gradient over the last k data sets, each collected under a different deployed model.

        v = sum_j w_j mean over S_j of grad l(theta; z),   S_0 the current batch, S_j, j = 1 .. k-1, from D(theta_{t-j})

    A data set begins when a new model is deployed; the client keeps the first `rows` samples of each. While there are
    fewer than k data sets, their weights are renormalized. With steps to the minimum it is `repeated_risk_minimization`
    on k data sets: for data with mean m + eps theta and the squared loss

        theta_{t+1} = m + eps sum_j w_j theta_{t-j},     which converges iff -k < eps < 1 for equal w_j,

    while k = 1, plain retraining, needs |eps| < 1. Khorsandi et al. 2025. It does not help if eps >= 1.

    Args:
        k: number of data sets
        rows: samples of each that a client keeps
        weights: w_j, [k], newest first; None for equal weights

    Example:

        import performative as pf

        print(pf.estimators.Snapshots(k=3, rows=50, weights=[0.5, 0.3, 0.2]))
    """

    references = ("khorsandi2025tight",)
    keeps_samples = True
    sends_update_only = True
    quadrature = draws_nothing

    k: int = whole()
    rows: int = whole()
    weights: Numbers | None = number(default=None)

    def __check_init__(self) -> None:
        check_counts(**{"Snapshots: k": self.k, "Snapshots: rows": self.rows})
        if self.weights is None:
            return
        check_finite("Snapshots", weights=self.weights)
        check_rule("Snapshots", "must not be negative", weights=self.weights)
        if np.shape(self.weights) != (self.k,):
            raise ValueError(f"Snapshots: weights must be {self.k} numbers; got shape {np.shape(self.weights)}.")
        if is_concrete(self.weights) and not np.asarray(self.weights)[0] > 0:
            raise ValueError("Snapshots: weights must not be 0 for the newest data set, the only one at the start.")

    def init(self, theta: Theta, population: AbstractPopulation, loss: Loss) -> Kept:
        def some() -> PyTree:
            noise = population.draw(jax.random.key(0), (self.rows,), theta)
            return collect(population, noise, None, population.init(Scene(theta, loss)), theta).z

        like = jax.eval_shape(some)
        z = jax.tree.map(lambda leaf: jnp.zeros((self.k, *leaf.shape), leaf.dtype), like)
        return Kept(z, jnp.zeros((self.k, self.rows), bool), jnp.full_like(ravel_pytree(theta)[0], jnp.nan))

    def estimate(self, noise: Noise, theta: Theta, batch: Batch, local: Local, memory: Kept) -> Estimate[Kept]:
        here = ravel_pytree(local.deployed)[0].astype(memory.model.dtype)
        z, there = _begun(memory.z, memory.there, jnp.any(here != memory.model))
        kept = Kept(*_filled(z, there, batch), here)

        def of(z: PyTree, there: Bool[Array, " rows"]) -> Theta:
            return batch_gradient(local.loss, theta, Batch(z, None, there))

        now = batch_gradient(local.loss, theta, batch)
        past = jax.vmap(of)(*jax.tree.map(lambda leaf: leaf[1:], (kept.z, kept.there)))
        share = jnp.ones(self.k, here.dtype) if self.weights is None else jnp.asarray(self.weights, here.dtype)
        known = jnp.concatenate([jnp.ones(1, bool), jnp.any(kept.there[1:], axis=1)])
        share = jnp.where(known, share, 0) / jnp.sum(jnp.where(known, share, 0))

        def mean(new: Array, old: Array) -> Array:
            return share[0].astype(new.dtype) * new + jnp.tensordot(share[1:].astype(new.dtype), old, axes=1)

        return Estimate(jax.tree.map(mean, now, past), kept, {"samples": count_samples(batch)})


def _begun(z: PyTree, there: Array, new: Bool[Array, ""]) -> tuple[PyTree, Array]:
    """The data sets shifted by one, if a new one begins."""

    def moved(leaf: Array) -> Array:
        return jnp.where(new, jnp.concatenate([jnp.zeros_like(leaf[:1]), leaf[:-1]]), leaf)

    return jax.tree.map(moved, z), moved(there)


def _filled(z: PyTree, there: Array, batch: Batch) -> tuple[PyTree, Array]:
    """The newest data set with the rows of a batch appended, as long as there is room."""
    real = jnp.ones(batch.rows, bool) if batch.mask is None else batch.mask
    place = jnp.sum(there[0], dtype=jnp.int32) + jnp.cumsum(real, dtype=jnp.int32) - 1
    place = jnp.where(real, place, there.shape[1])  # out of range: dropped
    rows = jax.tree.map(lambda all_, new: all_.at[0, place].set(new.astype(all_.dtype), mode="drop"), z, batch.z)
    return rows, there.at[0, place].set(True, mode="drop")

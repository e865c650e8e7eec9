"""Local momentum and local adaptive steps."""

import functools
from typing import Generic

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from performative._base.checks import check_flags
from performative.estimators.base import AbstractEstimator, AbstractWrapper, bound_of, check_inner, inner_quadrature
from performative.facts import Bound
from performative.optimizers import AbstractOptimizer, as_optimizer
from performative.populations.base import AbstractPopulation
from performative.types import Batch, Estimate, Local, Loss, Memory, Noise, Theta, Upload


class Optimized(eqx.Module, Generic[Memory]):
    """The optimizer's state, and `inner`'s memory."""

    state: PyTree
    inner: Memory


class Preconditioned(AbstractWrapper[Optimized[Memory]]):
    """v = tx(inner's),      tx an optimizer such as pf.optimizers.Momentum(0.9)

    Args:
        tx: one of `pf.optimizers`, or an optax transformation without learning rate (see `FromOptax`)
        reset: reset the optimizer each round (the default, as in FedNova's analysis), or keep its state between the
            client's rounds

    `Nova` corrects for unequal work by the response of tx to a gradient of 1: exact for momentum, which is linear; for
    adaptive rules, which divide by the size of gradients, only the part that depends on the number of steps. With
    reset=False the response is that after many such gradients (for Adagrad, whose steps keep shrinking, that at its
    start). Wang et al. 2020, 2021.
    """

    references = ("wang2021local",)
    sends_update_only = True
    quadrature = inner_quadrature

    inner: AbstractEstimator[Memory]
    tx: AbstractOptimizer = eqx.field(converter=as_optimizer)
    reset: bool = eqx.field(static=True, default=True)

    def __check_init__(self) -> None:
        check_inner(self)
        check_flags("Preconditioned", reset=self.reset)

    def bound(self) -> Bound:
        return bound_of(self.inner)  # processing a noisy direction reads no data

    def init(self, theta: Theta, population: AbstractPopulation, loss: Loss) -> Optimized[Memory]:
        return Optimized(self.tx.start(theta), self.inner.init(theta, population, loss))

    def estimate(
        self, noise: Noise, theta: Theta, batch: Batch, local: Local, memory: Optimized[Memory]
    ) -> Estimate[Optimized[Memory]]:
        out = self.inner.estimate(noise, theta, batch, local, memory.inner)
        direction, state = self.tx.turn(out.direction, memory.state, theta)
        return Estimate(direction, Optimized(state, out.memory), out.metrics, out.facts)

    def finish(
        self, upload: Upload, local: Local, memory: Optimized[Memory]
    ) -> tuple[dict[str, PyTree], Optimized[Memory]]:
        extra, inside = self.inner.finish(upload, local, memory.inner)
        fresh, state = self.tx.start(local.broadcast.theta), memory.state
        if self.reset:
            state = fresh
        else:  # a non-finite round would corrupt all later ones
            sound = all_finite((upload.delta, state))
            state = jax.tree.map(lambda new, old: jnp.where(sound, old, new), fresh, state)
        return extra, Optimized(state, inside)

    def unit_start(self) -> PyTree:
        state = self.tx.start(jnp.zeros(()))
        return (state if self.reset else self.tx.settled(state)), self.inner.unit_start()

    def step_response(self, gone: Array, carry: PyTree) -> tuple[Array, PyTree]:
        state, inside = carry
        unit, inside = self.inner.step_response(gone, inside)
        turned, state = self.tx.turn(unit, state, gone)
        return turned, (state, inside)

    def review(self, memory: Optimized[Memory]) -> list[str]:
        return self.inner.review(memory.inner)


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Whether every number of every leaf is finite."""
    return functools.reduce(jnp.logical_and, (jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)))

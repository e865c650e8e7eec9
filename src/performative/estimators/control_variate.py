"""Local steps without client drift: each client corrects for how it differs from the others."""

from typing import Generic

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from performative.estimators.base import AbstractEstimator, AbstractWrapper, check_inner, inner_quadrature
from performative.estimators.preconditioned import Preconditioned, all_finite
from performative.facts import chain
from performative.populations.base import AbstractPopulation
from performative.types import Batch, Estimate, Local, Loss, Memory, Noise, Theta, Upload


class Control(eqx.Module, Generic[Memory]):
    """c_i, the sum of this round's directions so far, and `inner`'s memory."""

    own: Theta
    total: Theta
    inner: Memory


class ControlVariate(AbstractWrapper[Control[Memory]]):
    """v = inner's - c_i + c,      c_i <- mean over the round's local steps of inner's own directions

    c = sum_i p_i c_i comes from the server, which must be `Scaffold`; the client sends the change of its c_i.
    Karimireddy et al. 2020 (SCAFFOLD). For plain steps of constant size c_i is their option II, c_i - c + (theta_0 -
    theta_i)/(tau_i eta). It differs if step sizes vary: the mean is over directions, so neither a projection nor an
    optimizer around this part affects c_i.

    Without randomness it converges to the stable point itself, whatever the tau_i. It does not remove batch noise.
    `Prox` and `Preconditioned` go around it. c_i reveals much about a client and bypasses the channel: `ClippedNoise`
    does not protect it.
    """

    references = ("karimireddy2020scaffold",)
    quadrature = inner_quadrature

    inner: AbstractEstimator[Memory]

    def __check_init__(self) -> None:
        check_inner(self)
        for part in chain(self.inner):
            if isinstance(part, Preconditioned):
                raise ValueError(
                    "ControlVariate: Preconditioned goes outside, otherwise the optimizer's warm-up looks like "
                    "drift: Preconditioned(ControlVariate(...), tx)."
                )
            if isinstance(part, ControlVariate):
                raise ValueError("ControlVariate inside ControlVariate: a client has one c_i; drop one of them.")

    def init(self, theta: Theta, population: AbstractPopulation, loss: Loss) -> Control[Memory]:
        zero = jax.tree.map(jnp.zeros_like, theta)
        return Control(zero, zero, self.inner.init(theta, population, loss))

    def estimate(
        self, noise: Noise, theta: Theta, batch: Batch, local: Local, memory: Control[Memory]
    ) -> Estimate[Control[Memory]]:
        if "control" not in local.broadcast.extra:
            raise ValueError(
                "ControlVariate needs a server that keeps the mean of the clients' c_i: use it with the aggregator "
                "pf.aggregators.Scaffold()."
            )
        out = self.inner.estimate(noise, theta, batch, local, memory.inner)
        corrected = jax.tree.map(
            lambda v, mine, all_: v - mine + all_, out.direction, memory.own, local.broadcast.extra["control"]
        )
        total = jax.tree.map(jnp.add, memory.total, out.direction)
        return Estimate(corrected, Control(memory.own, total, out.memory), out.metrics, out.facts)

    def finish(
        self, upload: Upload, local: Local, memory: Control[Memory]
    ) -> tuple[dict[str, PyTree], Control[Memory]]:
        extra, inside = self.inner.finish(upload, local, memory.inner)
        # The server drops a non-finite update, so the client's c_i must stay what the server thinks it is.
        sound = all_finite((upload.delta, memory.total))

        def change(total: Array, mine: Array) -> Array:
            return jnp.where(sound, total / jnp.maximum(upload.steps, 1).astype(total.dtype) - mine, 0)

        news = jax.tree.map(change, memory.total, memory.own)
        own = jax.tree.map(jnp.add, memory.own, news)
        return {**extra, "control": news}, Control(own, jax.tree.map(jnp.zeros_like, own), inside)

    def review(self, memory: Control[Memory]) -> list[str]:
        return self.inner.review(memory.inner)

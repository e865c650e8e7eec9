"""The server's half of SCAFFOLD."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from performative.aggregators.base import AbstractAggregator, AbstractWrapper
from performative.aggregators.mean import Mean, weighted_sum
from performative.types import Cohort, Theta, Upload


class ScaffoldMemory(eqx.Module):
    """c, and `inner`'s memory."""

    control: Theta
    inner: PyTree


class Scaffold(AbstractWrapper[ScaffoldMemory]):
    """Keep c = sum_i p_i c_i and send it to the clients, which correct their steps by it. The move is `inner`'s.

        c <- c + sum_k p_k (c_k_new - c_k_old)      over the participants

    With p_k, not a_k: c is exactly the mean over all clients, whoever was drawn and however often. For p_i = 1/N it is
    the update of Karimireddy et al. 2020. c is a running sum: in float32 the rounding errors of the first, large
    updates stay in it, as in `Varp`; use dtype="float64" if that matters. It needs the estimator `ControlVariate`. A
    server step size is `ServerOpt(Scaffold(), Momentum(0.0), rate)`.
    """

    references = ("karimireddy2020scaffold",)
    ignores_data = True

    inner: AbstractAggregator = Mean()

    def init(self, theta: Theta, clients: int, extra: dict[str, PyTree]) -> ScaffoldMemory:
        if "control" not in extra:
            raise ValueError(
                "Scaffold needs clients that correct their steps; use it with the estimator "
                "ControlVariate(Minibatch())."
            )
        return ScaffoldMemory(jax.tree.map(jnp.zeros_like, theta), self.inner.init(theta, clients, extra))

    def broadcast(self, memory: ScaffoldMemory) -> dict[str, PyTree]:
        return {**self.inner.broadcast(memory.inner), "control": memory.control}

    def aggregate(
        self, theta: Theta, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: ScaffoldMemory
    ) -> tuple[Theta, ScaffoldMemory]:
        move, inside = self.inner.aggregate(theta, upload, cohort, weights, memory.inner)
        share: Array = jnp.take(weights, cohort.ids, mode="clip")
        news = weighted_sum(upload.extra["control"], share, cohort.active)
        return move, ScaffoldMemory(jax.tree.map(jnp.add, memory.control, news), inside)

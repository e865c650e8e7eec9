"""A server that treats the move as a gradient instead of adding it."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from performative._base.checks import check_number
from performative.aggregators.base import AbstractAggregator, AbstractWrapper
from performative.facts import declared
from performative.optimizers import AbstractOptimizer, as_optimizer
from performative.types import Cohort, Numbers, Theta, Upload, is_concrete, number


class OptimizedServer(eqx.Module):
    """The optimizer's state, and `inner`'s memory."""

    state: PyTree
    inner: PyTree


class ServerOpt(AbstractWrapper[OptimizedServer]):
    """move = -rate tx(-inner's move)

    FedAvgM, FedAdam, FedAdagrad and FedYogi with tx = Momentum, Adam, Adagrad and Yogi of `pf.optimizers`; or any
    optax transformation without learning rate (see `FromOptax`). Reddi et al. 2021, Algorithm 2; optax applies bias
    correction to Adam and Yogi, which the paper does not.

    It has the same fixed point as `inner`: the move is 0 there. Adaptive rules divide by the size of past moves, so
    with a fixed rate they may oscillate around that point; a larger `eps` damps them.
    """

    references = ("reddi2021adaptive",)
    ignores_data = True

    inner: AbstractAggregator
    tx: AbstractOptimizer = eqx.field(converter=as_optimizer)
    rate: Numbers = number(default=1.0)

    def __check_init__(self) -> None:
        check_number("ServerOpt", rate=self.rate)
        if is_concrete(self.rate) and not self.rate >= 0:
            raise ValueError(f"ServerOpt: rate must not be negative; got {self.rate}.")

    def init(self, theta: Theta, clients: int, extra: dict[str, PyTree]) -> OptimizedServer:
        return OptimizedServer(self.tx.start(theta), self.inner.init(theta, clients, extra))

    def aggregate(
        self, theta: Theta, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: OptimizedServer
    ) -> tuple[Theta, OptimizedServer]:
        move, inside = self.inner.aggregate(theta, upload, cohort, weights, memory.inner)
        return self._turned(theta, move, inside, memory)

    def needs_sums_only(self) -> bool:
        return bool(declared(self.inner, "needs_sums_only"))

    def sum_weights(
        self, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: OptimizedServer
    ) -> Float[Array, " K"]:
        return self.inner.sum_weights(upload, cohort, weights, memory.inner)

    def aggregate_sum(
        self,
        theta: Theta,
        total: Theta,
        upload: Upload,
        cohort: Cohort,
        weights: Float[Array, " N"],
        memory: OptimizedServer,
    ) -> tuple[Theta, OptimizedServer]:
        move, inside = self.inner.aggregate_sum(theta, total, upload, cohort, weights, memory.inner)
        return self._turned(theta, move, inside, memory)

    def _turned(
        self, theta: Theta, move: Theta, inside: PyTree, memory: OptimizedServer
    ) -> tuple[Theta, OptimizedServer]:
        """The optimizer's move."""
        direction, state = self.tx.turn(jax.tree.map(jnp.negative, move), memory.state, theta)
        move = jax.tree.map(lambda v: -jnp.asarray(self.rate, v.dtype) * v, direction)
        return move, OptimizedServer(state, inside)

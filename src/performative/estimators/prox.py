"""Local steps that stay close to their starting point."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from performative._base.checks import check_number, check_rule
from performative.estimators.base import AbstractEstimator, AbstractWrapper, bound_of, check_inner, inner_quadrature
from performative.facts import Bound
from performative.types import Batch, Estimate, Local, Memory, Noise, Numbers, Theta, number


class Prox(AbstractWrapper[Memory]):
    """v = inner's + mu (theta - theta_0),      theta_0 the model that the round began with

    The gradient of the local loss plus mu |theta - theta_0|^2 / 2. Li et al. 2020 (FedProx). It bounds client drift but
    does not remove it: with unequal work or heterogeneous clients its fixed point moves as FedAvg's does, but less.
    `Nova` around the mean corrects for unequal work.
    """

    references = ("li2020fedprox",)
    sends_update_only = True
    quadrature = inner_quadrature

    inner: AbstractEstimator[Memory]
    mu: Numbers = number()

    def __check_init__(self) -> None:
        check_inner(self)
        check_number("Prox", mu=self.mu)
        check_rule("Prox", "must not be negative", mu=self.mu)

    def bound(self) -> Bound:
        return bound_of(self.inner)  # processing a noisy direction reads no data

    def estimate(self, noise: Noise, theta: Theta, batch: Batch, local: Local, memory: Memory) -> Estimate[Memory]:
        out = self.inner.estimate(noise, theta, batch, local, memory)

        def pull(v: Array, here: Array, start: Array) -> Array:
            return v + jnp.asarray(self.mu, v.dtype) * (here - start)

        pulled: Theta = jax.tree.map(pull, out.direction, theta, local.broadcast.theta)
        return Estimate(pulled, out.memory, out.metrics, out.facts)

    def step_response(self, gone: Array, carry: PyTree) -> tuple[Array, PyTree]:
        # theta - theta_0 is -gone: steps go against the direction.
        unit, carry = self.inner.step_response(gone, carry)
        return unit - jnp.asarray(self.mu, unit.dtype) * gone.astype(unit.dtype), carry

"""Generators trained on their own output and a fraction of real data."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from performative._base.checks import check_finite, check_rule
from performative.losses import AbstractLoss
from performative.populations.base import AbstractPopulation
from performative.populations.nodes import standard_nodes
from performative.populations.shares import pick
from performative.types import Noise, Numbers, RowNumbers, Sample, Theta, number, per_client


def normal_likelihood(theta: Theta, z: Sample) -> Float[Array, ""]:
    """-log density of N(theta_0, exp(2 theta_1)) at z, up to a constant."""
    return theta[1] + 0.5 * jnp.square(z - theta[0]) * jnp.exp(-2 * theta[1])


class Generated(AbstractPopulation[None]):
    """Real data mixed with samples of the deployed model N(theta_0, exp(2 theta_1)).

        Z_i ~ real_i N(mean_i, scale_i^2) + (1 - real_i) N(theta_0, exp(2 theta_1))

    With `normal_likelihood`, a single mean m and scale s: theta_PS = (m, log s), theta_PO = (m, log(s sqrt(real))).
    """

    references = ()

    mean: Numbers = per_client()
    scale: Numbers = per_client()
    real: Numbers = per_client()

    def __check_init__(self) -> None:
        check_finite("Generated", mean=self.mean, scale=self.scale, real=self.real)
        check_rule("Generated", "must be above 0", scale=self.scale)
        check_rule("Generated", "must lie in [0, 1]", real=self.real)

    def model_shape(self) -> tuple[int, ...]:
        return (2,)

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...], theta: Theta, rows: RowNumbers | None = None) -> Noise:
        first, second = jax.random.split(key)
        return jax.random.uniform(first, shape), jax.random.normal(second, shape, jnp.asarray(theta).dtype)

    def sample(self, noise: Noise, world: None, theta: Theta) -> Array:
        which, spread = noise
        made = theta[0] + jnp.exp(theta[1]) * spread
        return jnp.where(which < self.real, self.mean + self.scale * spread, made)

    def quadrature(self, theta: Theta, count: int) -> tuple[Noise, Array]:
        """Real rows, then generated ones: exact wherever the normal rule is."""
        spread, weight = standard_nodes((), count)
        which = jnp.concatenate([jnp.full(weight.shape, -1.0), jnp.full(weight.shape, 2.0)])
        return (which, jnp.concatenate([spread, spread])), jnp.concatenate(
            [self.real * weight, (1 - self.real) * weight]
        )


class Composed(AbstractPopulation[None]):
    """Mixture components drawn by their real shares, or by the shares of the deployed model.

        k ~ real_i share_i + (1 - real_i) softmax(theta, 0),      Z ~ N(center_k, scale^2)

    `share` [N, K]; theta has K - 1 numbers, the last logit is 0.
    """

    references = ()

    share: Numbers = per_client()
    real: Numbers = per_client()
    center: Numbers = number()
    scale: Numbers = number()

    def __check_init__(self) -> None:
        check_finite("Composed", share=self.share, real=self.real, center=self.center, scale=self.scale)
        check_rule("Composed", "must lie in [0, 1]", real=self.real, share=self.share)

    @property
    def smooth(self) -> bool:
        return False

    def model_shape(self) -> tuple[int, ...]:
        return (self.share.shape[-1] - 1,)

    def _shares(self, theta: Theta) -> Array:
        return self.real * self.share + (1 - self.real) * jnp.exp(log_shares(theta))

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...], theta: Theta, rows: RowNumbers | None = None) -> Noise:
        first, second = jax.random.split(key)
        dtype = jnp.asarray(theta).dtype
        return jax.random.uniform(first, shape, dtype), jax.random.normal(second, shape, dtype)

    def sample(self, noise: Noise, world: None, theta: Theta) -> Array:
        which, spread = noise
        return self.center[pick(which, self._shares(theta))] + self.scale * spread

    def quadrature(self, theta: Theta, count: int) -> tuple[Noise, Array]:
        shares = self._shares(theta)
        spread, weight = standard_nodes((), count)
        each = [(spread, weight)] * shares.shape[0]
        which = jnp.concatenate([jnp.full(weight.shape, -1.0 - k) for k in range(len(each))])
        spreads = jnp.concatenate([own for own, _ in each])
        return (which, spreads), jnp.concatenate([shares[k] * weight for k in range(len(each))])


def log_shares(theta: Theta) -> Array:
    """log softmax(theta, 0)."""
    return jax.nn.log_softmax(jnp.concatenate([theta, jnp.zeros((1,), theta.dtype)]))


class ComposedLikelihood(AbstractLoss):
    """-log sum_k softmax(theta, 0)_k N(z; center_k, scale^2), up to a constant."""

    center: Numbers = number()
    scale: Numbers = number()

    def __call__(self, theta: Theta, z: Sample) -> Float[Array, ""]:
        return -jax.nn.logsumexp(log_shares(theta) - 0.5 * jnp.square((z - self.center) / self.scale))

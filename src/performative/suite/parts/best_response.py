"""People who respond to any differentiable score."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from performative._base.checks import check_counts, check_finite, check_number, check_rule
from performative.losses import AbstractLoss
from performative.populations.base import AbstractRows, real_rows
from performative.populations.rows import as_counts, as_labels, check_tables
from performative.types import Counts, Numbers, Sample, Theta, Unchecked, number, per_client, squared_norm, whole

# score(theta, x) for one person.
Score = Callable[[Theta, Array], Array]


class BestResponse(AbstractRows[None]):
    """People who lower their score by a few gradient steps, at a quadratic cost.

        x_0 = x,      x_{k+1} = x_k - rate (strength_i grad_x score(theta, x_k) + x_k - x),      k < steps

    These are gradient steps on score(theta, x') + |x' - x|^2 / (2 strength_i), times strength_i: with a score that is
    linear in x and rate 1, one step is the best response of `pf.populations.Strategic`. `x` [N, m, d], `y` [N, m];
    `strength` a number or [N]; labels do not change.
    Hardt et al. 2016 use exact best responses; people here stop after `steps`.
    """

    references = ("hardt2016strategic",)
    equal_rows = real_rows

    score: Unchecked[Score] = eqx.field(static=True)
    x: Numbers = per_client(table=True)
    y: Any = per_client(table=True, converter=as_labels)
    strength: Numbers = per_client()
    rate: Numbers = number(default=0.5)
    steps: int = whole(default=5)
    count: Counts | None = per_client(default=None, converter=as_counts)

    def __check_init__(self) -> None:
        if np.ndim(self.x) != 3 or np.shape(self.y) != np.shape(self.x)[:2]:
            raise ValueError(
                "BestResponse: x must be [clients, rows, features] and y [clients, rows]; got shapes "
                f"{np.shape(self.x)} and {np.shape(self.y)}."
            )
        check_tables("BestResponse", self.count, x=self.x, y=self.y)
        check_finite("BestResponse", strength=self.strength)
        check_rule("BestResponse", "must not be negative", strength=self.strength)
        check_number("BestResponse", rate=self.rate)
        check_counts(**{"BestResponse: steps": self.steps})
        _ = self.clients

    @property
    def capacity(self) -> int:
        return self.x.shape[-2]

    @property
    def group_count(self) -> int:
        return 2

    def sample(self, noise: Array, world: None, theta: Theta) -> tuple[Array, Array]:
        first, y = self.x[noise], self.y[noise]
        push = jax.grad(lambda at: self.score(theta, at))
        x = first
        for _ in range(self.steps):
            x = x - self.rate * (self.strength * push(x) + x - first)
        return x, y

    def group(self, noise: Array, world: None, theta: Theta) -> Int[Array, ""]:
        return self.y[noise]


class ScoreLoss(AbstractLoss):
    """log(1 + exp(s)) - y s + penalty |theta|^2 / 2 for a score s = score(theta, x), y in {0, 1}."""

    score: Unchecked[Score] = eqx.field(static=True)
    penalty: Numbers = number(default=0.0)

    def __call__(self, theta: Theta, z: Sample) -> Float[Array, ""]:
        x, y = z
        s = self.score(theta, x)
        return jax.nn.softplus(s) - jnp.asarray(y).astype(s.dtype) * s + 0.5 * self.penalty * squared_norm(theta)


def quadratic_score(theta: Theta, x: Array) -> Array:
    """theta . (1, x, x^2, products): linear in theta, not in x."""
    upper = np.triu_indices(x.shape[-1])
    features = jnp.concatenate([jnp.ones((1,), x.dtype), x, x[upper[0]] * x[upper[1]]])
    return jnp.sum(theta * features)


def network_score(theta: Theta, x: Array) -> Array:
    """v . tanh(W x + b) + c with one hidden layer, theta = (W, b, v, c) as one vector of h (d + 2) + 1 numbers."""
    d = x.shape[-1]
    h = (theta.shape[0] - 1) // (d + 2)
    W, b, v = theta[: h * d].reshape(h, d), theta[h * d : h * (d + 1)], theta[h * (d + 1) : -1]
    return jnp.sum(v * jnp.tanh(jnp.sum(W * x, axis=-1) + b)) + theta[-1]

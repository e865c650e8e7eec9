"""The sampling error of a model trained on a population of this size, and whether an effect is detectable."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from performative._base.client_axis import split_clients
from performative._engine.risk import NODES
from performative.solve.landscape import Landscape
from performative.types import Noise, Scene

# Probabilities of confusing the two models below which an effect is detectable, and above which it is not.
_SHOWS, _DROWNS = 0.05, 0.3
# A direction with curvature below this fraction of the largest is flat: what is learned there is arbitrary.
_FLAT = 1e-10


def sampling_error(land: Landscape, x: np.ndarray, way: np.ndarray) -> float | None:
    """Standard deviation of theta_hat along `way` for training to the minimum on samples of the tables' sizes.

        Cov(theta_hat) = H^-1 V H^-1,      V = sum_i p_i^2 Cov_i(grad l) / rows_i

    H and Cov_i at theta = deployed = x; the limit of many rows, treating the tables as samples from a larger
    population. None if `way` is zero, clients have no tables, the risk is flat, or there are too many parameters for H.
    """
    population: Any = land.problem.population
    if population.capacity is None or not land.dense or not np.any(way):
        return None
    d = land.size
    H = land.own_curvature(x, x)
    values = np.linalg.eigvalsh(H) if np.all(np.isfinite(H)) else np.zeros(d)
    if values[0] <= _FLAT * abs(values[-1]) or values[-1] <= 0:
        return None
    spread = np.asarray(_spread(land, jnp.asarray(x)))
    along = np.linalg.solve(H, way / np.linalg.norm(way))
    return float(np.sqrt(max(along @ spread @ along, 0.0)))


def chance_of_mistake(gap: float, error: float | None) -> float:
    """The probability that a newly trained model lies nearer to the wrong one of two models that are `gap` apart.

    Phi(-gap / (2 error)),      for a normal error with standard deviation `error` along the line between them
    """
    from scipy import stats

    if error is None or math.isnan(gap):
        return math.nan
    return float(stats.norm.cdf(-gap / (2 * error))) if error > 0 else 0.5 * (gap == 0)


def shows(chance: float) -> bool | None:
    """Whether an effect is detectable: None if undecided or the probability is unknown."""
    if chance <= _SHOWS:
        return True
    return False if chance >= _DROWNS else None


@eqx.filter_jit
def _spread(land: Landscape, x: Float[Array, " d"]) -> Float[Array, "d d"]:
    """V: the covariance of the gradient of all clients' tables."""
    rows, shared = split_clients(land.problem.population)
    theta, loss = land.model(x), land.problem.loss

    def one(total: Array, each: tuple[Any, Array]) -> tuple[Array, None]:
        population = eqx.combine(each[0], shared)
        world = population.settle(Scene(theta, loss))
        noise, share = population.quadrature_within(world, theta, NODES)

        def gradient(u: Noise) -> Array:
            return ravel_pytree(jax.grad(loss)(theta, population.sample(u, world, theta)))[0]

        g, share = jax.vmap(gradient)(noise), share.astype(x.dtype)[:, None]
        g = g - jnp.sum(share * g, axis=0)
        held = jnp.asarray(population.rows).astype(x.dtype)
        return total + jnp.square(each[1]) / held * (g.T @ (share * g)), None

    return jax.lax.scan(one, jnp.zeros((len(x), len(x))), (rows, land.weights))[0]

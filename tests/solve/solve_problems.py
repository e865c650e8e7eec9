"""Small populations that the solver tests share."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import performative as pf
from performative.populations import AbstractPopulation, Gaussian
from performative.populations.gaussian import standard_nodes
from performative.types import Numbers

MEAN = np.array([1.0, 2.0, 3.0])
SENSITIVITY = np.array([0.2, 0.5, 0.1])
WEIGHTS = np.array([0.2, 0.3, 0.5])


def gaussian(sensitivity: Any = SENSITIVITY, domain: Any = None) -> pf.Problem:
    return pf.Problem(pf.losses.squared, Gaussian(MEAN, sensitivity, 1.0), WEIGHTS, domain)


class Pricing(AbstractPopulation):
    """Demand that falls with the price: Z_i ~ N(demand_i - sensitivity_i * theta, 1)."""

    demand: Numbers = pf.per_client()
    sensitivity: Numbers = pf.per_client()

    def model_shape(self) -> Any:
        return np.shape(self.demand)[1:]

    def draw(self, key: Any, shape: Any, theta: Any, rows: Any = None) -> Any:
        return jax.random.normal(key, (*shape, *theta.shape), theta.dtype)

    def sample(self, noise: Any, world: Any, theta: Any) -> Any:
        return self.demand - self.sensitivity * theta + noise

    def quadrature(self, theta: Any, count: int) -> Any:
        return standard_nodes(jnp.shape(theta), 8)


class Bistable(AbstractPopulation):
    """Z ~ N(gain tanh(2 theta), 1): with the squared loss theta = gain tanh(2 theta) is stable."""

    gain: Numbers = pf.number()

    def model_shape(self) -> Any:
        return ()

    def draw(self, key: Any, shape: Any, theta: Any, rows: Any = None) -> Any:
        return jax.random.normal(key, shape, theta.dtype)

    def sample(self, noise: Any, world: Any, theta: Any) -> Any:
        return self.gain * jnp.tanh(2.0 * theta) + noise

    def quadrature(self, theta: Any, count: int) -> Any:
        return standard_nodes((), count)


def strategic() -> pf.Problem:
    """Logistic regression on people who move two of four features."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 40, 4))
    y = (rng.uniform(size=(5, 40)) < 1 / (1 + np.exp(-2 * x[..., 0]))).astype(int)
    population = pf.populations.Strategic(x, y, rng.uniform(0.5, 1.0, 5), features=[0, 2])
    return pf.Problem(pf.losses.logistic(0.1), population, [0.1, 0.3, 0.2, 0.2, 0.2])

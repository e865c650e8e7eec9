"""Small problems that the certificate's tests share."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import performative as pf
from performative.populations import AbstractPopulation, Gaussian
from performative.populations.nodes import standard_nodes
from performative.types import Numbers

MEAN = np.array([1.0, 2.0, 3.0])
SENSITIVITY = np.array([0.2, 0.5, -0.1])
WEIGHTS = np.array([0.2, 0.3, 0.5])


def gaussian(sensitivity: Any = SENSITIVITY, domain: Any = None) -> pf.Problem:
    return pf.Problem(pf.losses.squared, Gaussian(MEAN, sensitivity, 1.0), WEIGHTS, domain)


class Bistable(AbstractPopulation):
    """Z ~ N(2 tanh(2 theta), 1): with the squared loss theta = 2 tanh(2 theta) is stable, three times."""

    scale: Numbers = pf.number(default=1.0)

    def model_shape(self) -> Any:
        return ()

    def draw(self, key: Any, shape: Any, theta: Any, rows: Any = None) -> Any:
        return jax.random.normal(key, shape, theta.dtype)

    def sample(self, noise: Any, world: Any, theta: Any) -> Any:
        return 2.0 * jnp.tanh(2.0 * theta) + self.scale * noise

    def nodes(self, theta: Any, count: int) -> Any:
        return standard_nodes((), count)


class Tree(AbstractPopulation):
    """A dictionary of numbers: "a" follows theta["a"] by `follow`, "b" stays."""

    follow: Numbers = pf.per_client()

    def draw(self, key: Any, shape: Any, theta: Any, rows: Any = None) -> Any:
        return jax.random.normal(key, shape, theta["b"].dtype)

    def sample(self, noise: Any, world: Any, theta: Any) -> Any:
        return {"a": 1.0 + self.follow * theta["a"] + noise, "b": jnp.asarray(2.0, noise.dtype)}

    def nodes(self, theta: Any, count: int) -> Any:
        return standard_nodes((), count)


def strategic(strength: float, rows: int = 60) -> pf.Problem:
    """Logistic regression on people who move one of two features."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, rows, 2))
    y = (rng.uniform(size=(3, rows)) < 1 / (1 + np.exp(-2 * x[..., 0]))).astype(int)
    population = pf.populations.Strategic(x, y, strength * np.array([0.5, 1.0, 1.5]), features=[0])
    return pf.Problem(pf.losses.logistic(0.2), population)

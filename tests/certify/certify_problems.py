"""Small problems that the certificate's tests share."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import performative as pf
from performative.populations import AbstractPopulation, Gaussian
from performative.populations.gaussian import AbstractLocation
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

    def quadrature(self, theta: Any, count: int) -> Any:
        return standard_nodes((), count)


class Threshold(AbstractPopulation):
    """People whose normal threshold lies below theta + 1/2 give `gain` more, in jumps.

    E Z = gain (Phi(theta + 1/2) - Phi(1/2)): theta = 0 is stable, and retraining multiplies errors by 0.352 gain there.
    """

    gain: Numbers = pf.number()

    def model_shape(self) -> Any:
        return ()

    def draw(self, key: Any, shape: Any, theta: Any, rows: Any = None) -> Any:
        return jax.random.normal(key, shape, theta.dtype)

    def sample(self, noise: Any, world: Any, theta: Any) -> Any:
        return self.gain * (jnp.where(noise < theta + 0.5, 1.0, 0.0) - 0.6914624612740131)


class Bent(AbstractLocation):
    """Normal data around a place that the model bends: the slope is not all of it."""

    sensitivity: Numbers = pf.per_client()
    scale: Numbers = pf.per_client()

    @property
    def level(self) -> Any:
        return jnp.zeros(())

    @property
    def slope(self) -> Any:
        return self.sensitivity

    def location(self, theta: Any) -> Any:
        return self.sensitivity * 3.0 * jnp.tanh(theta)


class Mistaken(AbstractLocation):
    """Normal data whose author has the points wrong: they are not at 7."""

    mean: Numbers = pf.per_client()
    sensitivity: Numbers = pf.per_client()
    scale: Numbers = pf.per_client()

    @property
    def level(self) -> Any:
        return self.mean

    @property
    def slope(self) -> Any:
        return self.sensitivity

    def stable_point(self, loss: Any, weights: Any) -> Any:
        return np.asarray(7.0)

    def optimal_point(self, loss: Any, weights: Any) -> Any:
        return np.asarray(7.0)


def two_wells(theta: Any, z: Any) -> Any:
    """(theta^2 - 1)^2 / 4 + theta z / 10: minima near -1 and 1, the first one lower where z > 0."""
    return jnp.square(jnp.square(theta) - 1.0) / 4.0 + 0.1 * theta * z


class Tree(AbstractPopulation):
    """A dictionary of numbers: "a" follows theta["a"] by `follow`, "b" stays."""

    follow: Numbers = pf.per_client()

    def draw(self, key: Any, shape: Any, theta: Any, rows: Any = None) -> Any:
        return jax.random.normal(key, shape, theta["b"].dtype)

    def sample(self, noise: Any, world: Any, theta: Any) -> Any:
        return {"a": 1.0 + self.follow * theta["a"] + noise, "b": jnp.asarray(2.0, noise.dtype)}

    def quadrature(self, theta: Any, count: int) -> Any:
        return standard_nodes((), count)


def strategic(strength: float, rows: int = 60) -> pf.Problem:
    """Logistic regression on people who move one of two features."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, rows, 2))
    y = (rng.uniform(size=(3, rows)) < 1 / (1 + np.exp(-2 * x[..., 0]))).astype(int)
    population = pf.populations.Strategic(x, y, strength * np.array([0.5, 1.0, 1.5]), features=[0])
    return pf.Problem(pf.losses.logistic(0.2), population)

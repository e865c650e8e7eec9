"""A population that does not say what it knows."""

from typing import Any

from performative.populations import AbstractPopulation


class Untold(AbstractPopulation):
    """The same data as `inner`, without its closed forms and its sensitivity."""

    inner: AbstractPopulation

    def model_shape(self) -> Any:
        return self.inner.model_shape()

    def draw(self, key: Any, shape: Any, theta: Any, rows: Any = None) -> Any:
        return self.inner.draw(key, shape, theta, rows)

    def sample(self, noise: Any, world: Any, theta: Any) -> Any:
        return self.inner.sample(noise, world, theta)

    def quadrature(self, theta: Any, count: int) -> Any:
        return self.inner.quadrature(theta, count)

"""What a package of somebody else's holds: a population, a recipe, a loss, metrics, a callback, a data set."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

import performative as pf
from performative.data.catalog import DataSet


class Tired(pf.populations.AbstractPopulation):
    """N(effort / (1 + theta^2), 1)."""

    effort: pf.types.Numbers = pf.types.per_client()

    def model_shape(self):
        return ()

    def draw(self, key, shape, theta, rows=None):
        return jax.random.normal(key, shape, theta.dtype)

    def sample(self, noise, world, theta):
        return self.effort / (1 + theta**2) + noise


def absolute(theta, z):
    return abs(theta - z)


def patient(rate, **parts) -> pf.Algorithm:
    """Two local steps."""
    return pf.p_fedavg(rate, **{"local_steps": 2, **parts})


def effort(view):
    """How far the model moved in a round."""
    return jnp.abs(view.theta - view.previous)


class Near(eqx.Module):
    """Whether the model is within `reach` of a point."""

    to: Any = pf.number()
    reach: Any = pf.number(default=1.0)

    def __call__(self, view):
        return jnp.abs(view.theta - self.to) <= self.reach


class Diary:
    """One line a look: the round and a number, in the mean over repeats."""

    def __init__(self, path: str, number: str, every: int | None = None):
        self.path, self.number, self.every = path, number, every

    def begin(self, about, total):
        open(self.path, "w").close()

    def __call__(self, news):
        with open(self.path, "a") as file:
            file.write(f"{news.round} {news[self.number][:, -1].mean():.4f}\n")


NAPS = DataSet("naps", "Naps", (10, 2), "none stated", "made up", "scikit-learn")

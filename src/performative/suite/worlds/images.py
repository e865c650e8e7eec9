"""Images whose classes are drawn more often the worse they are told apart."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from performative import data, partition
from performative.data import DATA_SETS
from performative.losses import AbstractLoss, linear_scores
from performative.populations import Reweighted
from performative.problem import Problem
from performative.suite.budget import Budget
from performative.suite.registry import register
from performative.suite.setting import Setting
from performative.types import Numbers, Sample, Theta, number, squared_norm

_CLASSES = 5


class Softmax(AbstractLoss):
    """-log softmax(theta x)_y + penalty |theta|^2 / 2, theta [classes, d]."""

    penalty: Numbers = number(default=0.0)

    def convex(self) -> bool:
        return True

    def __call__(self, theta: Theta, z: Sample) -> Float[Array, ""]:
        x, y = z
        scores = jax.nn.log_softmax(linear_scores(theta, x))
        return -scores[jnp.asarray(y).astype(int)] + 0.5 * self.penalty * squared_norm(theta)


def _small_digits() -> tuple[np.ndarray, np.ndarray]:
    """The digits 0 to 4 in 4 x 4 pixels in 0..1, with a one behind."""
    table = data.digits()
    table = table.take(table.y < _CLASSES)
    pixels = table.x.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(len(table), 16) / 16.0
    return np.column_stack([pixels, np.ones(len(table))]), table.y


def _setting(parts: list[np.ndarray], temperature: np.ndarray) -> Setting:
    x, y = _small_digits()
    tables, labels, count = partition.tables(x, y, parts)
    people = Reweighted(tables, labels, temperature, classes=_CLASSES, count=count)
    problem = Problem(Softmax(0.01), people, weights=count / len(y))
    return Setting(
        problem, Budget(40, 80_000, 40), rows=100, start=np.zeros((_CLASSES, 17)), constants={"strong_convexity": 0.01},
        license=DATA_SETS["digits"].license, starts=0,
    )  # fmt: skip


@register("digits-reweighted-v1", family="images")
def digits() -> Setting:
    """The handwritten digits 0 to 4 of scikit-learn in 4 x 4 pixels at five clients, who draw a class by
    exp(temperature loss), temperature from 0 to 4, so that classes that the model gets wrong come more often. A linear
    model of five classes, L2 of 0.01 (Jin et al. 2024, Section 4.3, made small)."""
    return _setting(partition.iid(len(_small_digits()[1]), 5, 0), np.linspace(0.0, 4.0, 5))


@register("digits-unequal-v1", family="images")
def unequal() -> Setting:
    """The same digits at eight clients who hold classes by a Dirichlet draw of 0.5, some avoiding what is told apart
    badly (temperature -3), some seeking it (3)."""
    parts = partition.dirichlet(_small_digits()[1], 8, 0.5, seed=1, least=40)
    return _setting(parts, np.linspace(-3.0, 3.0, 8))

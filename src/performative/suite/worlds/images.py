"""Images whose classes are drawn more often the worse they are classified."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import optimize, special

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
_PENALTY = 0.05


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
    """The digits 0 to 4 in 4 x 4 pixels, in 0..1, centered, multiplied by three, with a column of ones."""
    table = data.digits()
    table = table.take(table.y < _CLASSES)
    pixels = table.x.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(len(table), 16) / 16.0
    return np.column_stack([3.0 * (pixels - pixels.mean(axis=0)), np.ones(len(table))]), table.y


def _trained(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The model trained on all rows with equal weight: the minimizer of the average loss."""
    label = np.eye(_CLASSES)[y]

    def risk(flat: np.ndarray) -> tuple[float, np.ndarray]:
        theta = flat.reshape(_CLASSES, -1)
        log_chance = special.log_softmax(x @ theta.T, axis=1)
        value = -np.sum(label * log_chance) / len(y) + 0.5 * _PENALTY * np.sum(theta**2)
        slope = (np.exp(log_chance) - label).T @ x / len(y) + _PENALTY * theta
        return float(value), slope.ravel()

    start = np.zeros(_CLASSES * x.shape[1])
    found = optimize.minimize(risk, start, jac=True, method="L-BFGS-B", options={"ftol": 0.0, "gtol": 1e-12})
    return np.asarray(found.x).reshape(_CLASSES, -1)


def _setting(parts: list[np.ndarray], temperature: np.ndarray) -> Setting:
    x, y = _small_digits()
    tables, labels, count = partition.tables(x, y, parts)
    people = Reweighted(tables, labels, temperature, classes=_CLASSES, count=count)
    problem = Problem(Softmax(_PENALTY), people, weights=count / len(y))
    return Setting(
        problem, Budget(40, 80_000, 40), rows=100, start=_trained(x, y), constants={"strong_convexity": _PENALTY},
        license=DATA_SETS["digits"].license, starts=0,
    )  # fmt: skip


@register("digits-reweighted-v2", family="images")
def digits() -> Setting:
    """The handwritten digits 0 to 4 of scikit-learn in 4 x 4 pixels at five clients, which draw classes in proportion
    to exp(temperature loss), temperature from 0 to 8, so classes that the model gets wrong become more frequent. A
    linear model of five classes, L2 of 0.05; the start was trained on all images with equal weight (a small version of
    Jin et al. 2024, Section 4.3). Full retraining overshoots. The gap is a few hundredths of the risk: steps must be
    short or averaged. In version 1 the start was zero, so scores only showed which method trains fastest."""
    return _setting(partition.iid(len(_small_digits()[1]), 5, 0), np.linspace(0.0, 8.0, 5))


@register("digits-unequal-v2", family="images")
def unequal() -> Setting:
    """The same digits at eight clients whose classes follow a Dirichlet(0.5) draw; some avoid poorly classified classes
    (temperature -6), some seek them (6)."""
    parts = partition.dirichlet(_small_digits()[1], 8, 0.5, seed=1, least=40)
    return _setting(parts, np.linspace(-6.0, 6.0, 8))

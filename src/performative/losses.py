"""Losses l(theta; z) of ONE sample. Functions and small modules, never lambdas: each new lambda is compiled again."""

import functools
import operator
from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from performative._base.checks import check_finite, check_number, check_rule, given
from performative.facts import AbstractPart, states
from performative.types import ArrayLike, Numbers, Sample, Theta, Unchecked, number, squared_norm, whole

__all__ = [
    "CrossEntropy",
    "Logistic",
    "Quadratic",
    "Revenue",
    "Ridge",
    "cross_entropy",
    "linear_scores",
    "logistic",
    "negative_revenue",
    "quadratic",
    "revenue",
    "ridge",
    "squared",
    "zero_one",
]

# Class scores of features x.
Scores = Callable[[Theta, Array], Array]


class AbstractLoss(AbstractPart):
    """l(theta; z) of one sample, as a record with optional facts.

    A function declares the same by `performative.facts.states`.

    convex:          whether it is convex in theta, for every sample

    Args:
        affine_gradient: whether its gradient is linear in theta and z, up to a constant
        hessian_by_x: whether samples are (x, y), and its second derivative in theta depends on x alone
    """

    affine_gradient: ClassVar[bool] = False
    hessian_by_x: ClassVar[bool] = False

    def convex(self) -> bool:
        return False

    def curvature(self) -> tuple[float, float, float] | None:
        """Global mu, L_theta, L_data: strong convexity, and Lipschitz constants of the gradient in theta and in z. None
        if they are not global, or unknown."""
        return None

    @abstractmethod
    def __call__(self, theta: Theta, z: Sample) -> Float[Array, ""]:
        """The loss of one sample."""


@states(convex=True, affine_gradient=True, curvature=(1.0, 1.0, 1.0))
def squared(theta: Theta, z: Sample) -> Float[Array, ""]:
    """|theta - z|^2 / 2, the loss of mean estimation."""
    return 0.5 * squared_norm(jax.tree.map(jnp.subtract, theta, z))


@states(convex=True, affine_gradient=True, curvature=(0.0, 0.0, 1.0))
def negative_revenue(theta: Theta, z: Sample) -> Float[Array, ""]:
    """-theta . z: the price theta, the demand z. It has no minimizer in theta unless the domain is bounded."""
    revenue = (jnp.sum(p * d) for p, d in zip(jax.tree.leaves(theta), jax.tree.leaves(z), strict=True))
    return -functools.reduce(operator.add, revenue)


class Revenue(AbstractLoss):
    """-theta . z + penalty |theta|^2 / 2: a price theta with a quadratic cost, and the demand z."""

    affine_gradient = True

    penalty: Numbers = number(default=0.0)

    def __check_init__(self) -> None:
        _check_penalty("revenue", self.penalty)

    def convex(self) -> bool:
        return True

    def curvature(self) -> tuple[float, float, float]:
        return float(self.penalty), float(self.penalty), 1.0

    def __call__(self, theta: Theta, z: Sample) -> Float[Array, ""]:
        return negative_revenue(theta, z) + 0.5 * self.penalty * squared_norm(theta)


def inner(theta: Array, x: Array) -> Array:
    """theta . x, by multiply and sum: a matrix product would be batched, and its bits depend on the batch."""
    return jnp.sum(theta * x)


def zero_one(theta: Theta, z: Sample) -> Float[Array, ""]:
    """0 where the linear classifier (1 if theta . x > 0, else 0) is right about y in {0, 1}, else 1.

    One minus its risk is the accuracy. It is for reporting: its gradient is 0 everywhere.
    """
    x, y = z
    return jnp.where((inner(theta, x) > 0) == (y > 0), 0, 1).astype(x.dtype)


def _check_penalty(owner: str, penalty: Numbers) -> None:
    check_number(owner, penalty=penalty)
    check_rule(owner, "must not be negative", penalty=penalty)


def _check_intercept(owner: str, intercept: object) -> None:
    if not (intercept is None or (type(intercept) is int and intercept >= 0)):
        raise ValueError(f"{owner}: intercept must be a column number of x, or None; got {intercept!r}.")


def _penalized(theta: Array, intercept: int | None) -> Array:
    """theta with its intercept, which is not penalized, set to 0."""
    return theta if intercept is None else theta.at[intercept].set(0)


class Quadratic(AbstractLoss):
    """|theta + scale z|^2 / 2: the squared loss on data -scale z. Li, Yemini and Wai 2024, Eq. (24)."""

    affine_gradient = True

    scale: Numbers = number()

    def __check_init__(self) -> None:
        check_number("quadratic", scale=self.scale)

    def convex(self) -> bool:
        return True

    def curvature(self) -> tuple[float, float, float]:
        return 1.0, 1.0, abs(float(self.scale))

    def __call__(self, theta: Theta, z: Sample) -> Float[Array, ""]:
        return 0.5 * squared_norm(jax.tree.map(lambda v, data: v + self.scale * data, theta, z))


class Ridge(AbstractLoss):
    """((theta . x - y)^2 + penalty |theta|^2) / 2.

    `intercept` is the column that the penalty leaves alone, None to penalize all.
    """

    hessian_by_x = True

    penalty: Numbers = number(default=0.0)
    intercept: int | None = whole(default=None)

    def __check_init__(self) -> None:
        _check_penalty("ridge", self.penalty)
        _check_intercept("ridge", self.intercept)

    def convex(self) -> bool:
        return bool(np.all(np.asarray(self.penalty) >= 0))

    def __call__(self, theta: Theta, z: Sample) -> Float[Array, ""]:
        x, y = z
        miss = inner(theta, x) - jnp.asarray(y).astype(x.dtype)
        return 0.5 * (jnp.square(miss) + self.penalty * jnp.sum(jnp.square(_penalized(theta, self.intercept))))


class Logistic(AbstractLoss):
    """w_y (log(1 + exp(theta . x)) - y theta . x) + penalty |theta|^2 / 2,   y in {0, 1}.

    `class_weight` (w_0, w_1) weights the labels; (1, 2) is loss (7) of Li, Yemini and Wai 2024. `intercept` is the
    column that the penalty leaves alone, None to penalize all.
    """

    penalty: Numbers = number(default=0.0)
    class_weight: Numbers | None = number(default=None)
    intercept: int | None = whole(default=None)

    def __check_init__(self) -> None:
        _check_penalty("logistic", self.penalty)
        check_finite("logistic", **given(class_weight=self.class_weight))
        if self.class_weight is not None and np.shape(self.class_weight) != (2,):
            raise ValueError(f"logistic: class_weight must be (w_0, w_1); got shape {np.shape(self.class_weight)}.")
        check_rule("logistic", "must not be negative", class_weight=self.class_weight)
        _check_intercept("logistic", self.intercept)

    def convex(self) -> bool:
        return True

    def __call__(self, theta: Theta, z: Sample) -> Float[Array, ""]:
        x, y = z
        score = inner(theta, x)
        label = jnp.asarray(y).astype(score.dtype)
        value = jax.nn.softplus(score) - label * score
        if self.class_weight is not None:
            value = value * jnp.where(label > 0.5, self.class_weight[1], self.class_weight[0])
        return value + 0.5 * self.penalty * jnp.sum(jnp.square(_penalized(theta, self.intercept)))


class CrossEntropy(AbstractLoss):
    """-log softmax(model(theta, x))_y for any model that maps (theta, x) to class scores."""

    model: Unchecked[Scores] = eqx.field(static=True)

    def __check_init__(self) -> None:
        if not callable(self.model):
            raise ValueError(f"cross_entropy: model must be a function (theta, x) -> scores; got {self.model!r}.")

    def convex(self) -> bool:
        return self.model is linear_scores

    def __call__(self, theta: Theta, z: Sample) -> Float[Array, ""]:
        x, y = z
        return -jax.nn.log_softmax(self.model(theta, x))[jnp.asarray(y).astype(int)]


def revenue(penalty: ArrayLike = 0.0) -> Revenue:
    """-theta . z + penalty |theta|^2 / 2."""
    return Revenue(penalty)


def quadratic(scale: ArrayLike) -> Quadratic:
    """|theta + scale z|^2 / 2."""
    return Quadratic(scale)


def ridge(penalty: ArrayLike = 0.0, intercept: int | None = None) -> Ridge:
    """((theta . x - y)^2 + penalty |theta|^2) / 2; see `Ridge`."""
    return Ridge(penalty, intercept)


def logistic(penalty: ArrayLike = 0.0, class_weight: ArrayLike | None = None, intercept: int | None = None) -> Logistic:
    """The logistic loss with an L2 penalty; see `Logistic`."""
    return Logistic(penalty, class_weight, intercept)


def cross_entropy(model: Unchecked[Scores]) -> CrossEntropy:
    """The loss of a classifier `model(theta, x) -> scores`."""
    return CrossEntropy(model)


def linear_scores(theta: Theta, x: Array) -> Array:
    """Class scores of a linear model: theta [classes, d] times x [d]."""
    return jnp.sum(theta * x, axis=-1)

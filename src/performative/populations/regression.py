"""Linear regression whose coefficients respond to the model."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from performative._base.checks import check_finite, check_rule
from performative.families import Slope
from performative.losses import Ridge
from performative.populations.base import AbstractPopulation, new_people
from performative.populations.linear import by_client, check_shapes, divide, is_positive, react, widest
from performative.populations.nodes import standard_nodes
from performative.types import ArrayLike, Loss, Numbers, RowNumbers, Theta, is_concrete, per_client

_NUMBERS = 1 << 22  # of clients' matrices that are in memory at once


class Regression(AbstractPopulation[None]):
    """Outcomes that follow the listed price.

        x ~ N(features_mean_i, features_cov_i),      y = (slope_i - sensitivity_i * theta) . x + noise_i * normal

    z = (x, y). `features_mean` and `slope` are [N] for a number theta (x is a number too), [N, d] for a vector.
    `features_cov` contains variances (a number, [N], [N, d]) or covariances [N, d, d]; `sensitivity` is a number, [N],
    [N, d] or [N, d, d]; `noise` a standard deviation. For theta of shape (d,) or a number. With `ridge(penalty)`, S_i =
    features_cov_i + features_mean_i features_mean_i^T and A_i = 1 + sensitivity_i:

        theta_PS:  (sum p S A + penalty) theta = sum p S slope
        theta_PO:  (sum p A^T S A + penalty) theta = sum p A^T S slope

    Izzo, Ying and Zou 2021; Zheng et al. 2024, Section 6, house pricing: their Table 1 is sensitivity = -5/3.
    """

    references = ("izzo2021learn", "zheng2024profl")
    features_stay = exact_family = True
    level_field = "slope"
    equal_rows = new_people

    features_mean: Numbers = per_client()
    features_cov: Numbers = per_client()
    slope: Numbers = per_client()
    sensitivity: Numbers = per_client()
    noise: Numbers = per_client()

    def __check_init__(self) -> None:
        named = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        check_finite("Regression", **named)
        if self.clients < 1:
            raise ValueError("Regression: features_mean is empty; pass one entry per client.")
        if np.ndim(self.noise) > 1:
            raise ValueError(f"Regression: noise must be a number or one per client; got shape {np.shape(self.noise)}.")
        check_rule("Regression", "is a standard deviation and must be >= 0", noise=self.noise)
        del named["noise"]
        check_shapes("Regression", self.model_shape(), named, matrices=("features_cov", "sensitivity"))
        if is_concrete(self.features_cov):
            _check_covariance(np.asarray(self.features_cov))

    @property
    def family(self) -> Slope:
        return Slope()

    def model_shape(self) -> tuple[int, ...]:
        vectors = (np.shape(self.features_mean)[1:], np.shape(self.slope)[1:])
        return widest(*vectors, np.shape(self.features_cov)[1:2], np.shape(self.sensitivity)[1:2])

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...], theta: Theta, rows: RowNumbers | None = None) -> Array:
        theta = jnp.asarray(theta)
        full = (*shape, theta.size + 1)  # one for each feature, one for the outcome
        return jax.random.normal(key, (int(np.prod(full)),), theta.dtype).reshape(full)

    def sample(self, noise: Array, world: None, theta: Theta) -> tuple[Array, Array]:
        spread = noise[:-1].reshape(jnp.shape(theta))
        # A variance by coordinate needs a square root; a covariance the lower factor of L L^T.
        factor = jnp.linalg.cholesky(self.features_cov) if self.features_cov.ndim == 2 else jnp.sqrt(self.features_cov)
        x = self.features_mean + react(factor, spread)
        coefficients = self.slope - react(self.sensitivity, theta)
        return x, jnp.sum(coefficients * x) + self.noise * noise[-1]

    def quadrature(self, theta: Theta, count: int) -> tuple[Array, Array]:
        """Exact for risks that are quadratic in (x, y), and for smooth ones of a number theta."""
        return standard_nodes((int(np.prod(jnp.shape(theta))) + 1,), count)

    def stable_point(self, loss: Loss, weights: ArrayLike) -> Theta | None:
        return self._solve(loss, weights, follow=False)

    def optimal_point(self, loss: Loss, weights: ArrayLike) -> Theta | None:
        return self._solve(loss, weights, follow=True)

    def _solve(self, loss: Loss, weights: ArrayLike, follow: bool) -> np.ndarray | None:
        """theta_PO if the data follow theta, else theta_PS; None except for the ridge loss."""
        if not isinstance(loss, Ridge) or np.ndim(loss.penalty) > 0 or loss.intercept is not None:
            return None
        shape, clients = self.model_shape(), self.clients
        d = int(np.prod(shape))
        p, left, right = np.asarray(weights, np.float64), np.zeros((d, d)), np.zeros(d)
        mean, slope = (by_client(v, clients, shape).reshape(clients, d) for v in (self.features_mean, self.slope))
        block = max(1, _NUMBERS // d**2)
        for first in range(0, clients, block):
            rows = slice(first, first + block)
            S = _matrices(self.features_cov, clients, d, rows) + mean[rows, :, None] * mean[rows, None, :]
            A = np.eye(d) + _matrices(self.sensitivity, clients, d, rows)
            pull = np.swapaxes(A, 1, 2) @ S if follow else S
            left += np.tensordot(p[rows], pull @ A, 1)
            right += np.tensordot(p[rows], (pull @ slope[rows, :, None])[..., 0], 1)
        left += float(loss.penalty) * np.eye(d)
        if follow and not is_positive(left):
            return None
        found = divide(right, left)
        return None if found is None else found.reshape(shape)


def _matrices(value: Numbers, clients: int, d: int, rows: slice) -> np.ndarray:
    """Rows of a number, [N], [N, d] or [N, d, d] as matrices."""
    if np.ndim(value) == 3:
        return np.asarray(value[rows], np.float64)
    return by_client(value, clients, (d,))[rows][..., None] * np.eye(d)


def _check_covariance(cov: np.ndarray) -> None:
    if cov.ndim < 3:
        if np.any(cov < 0):
            raise ValueError(
                f"Regression: features_cov contains variances and must be >= 0; the smallest is {cov.min():g}."
            )
        return
    uneven = np.abs(cov - np.swapaxes(cov, 1, 2)).max(axis=(1, 2)) > 1e-8 * np.abs(cov).max(axis=(1, 2))
    least = np.linalg.eigvalsh(cov).min(axis=1)
    bad = np.flatnonzero(uneven | (least <= 0))
    if len(bad):
        why = "is not symmetric" if uneven[bad[0]] else f"has the eigenvalue {least[bad[0]]:.3g}"
        raise ValueError(
            f"Regression: features_cov must contain symmetric positive definite matrices; that of client {bad[0]} "
            f"{why}. Give [N, d] variances if features are independent: those may be 0."
        )

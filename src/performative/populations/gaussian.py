"""Gaussian mean estimation under shift."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from performative import losses
from performative.errors import check_finite
from performative.families import Location
from performative.populations.base import AbstractPopulation
from performative.types import Numbers, Theta, is_concrete, per_client

_HERMITE_NODES = 32  # exact for polynomials up to degree 63


def react(sensitivity: Array, theta: Array) -> Array:
    """sensitivity * theta: a number or a vector acts by coordinate, a matrix as a linear map."""
    if sensitivity.ndim == 2:
        return jnp.sum(sensitivity * theta, axis=-1)
    return sensitivity * theta


def standard_nodes(shape: tuple[int, ...], count: int) -> tuple[Array, Array]:
    """Nodes and weights for E[g(X)], X standard normal of the given shape.

    One dimension: Gauss-Hermite. More: fixed antithetic draws, whitened so that mean and covariance are exact.
    """
    size = int(np.prod(shape))
    if size == 1:
        nodes, weights = np.polynomial.hermite_e.hermegauss(_HERMITE_NODES)
        return jnp.asarray(nodes.reshape(-1, *shape)), jnp.asarray(weights / weights.sum())
    half = max(count // 2, 2 * size)
    draws = np.random.default_rng(0).standard_normal((half, size))
    draws = np.concatenate([draws, -draws])
    factor = np.linalg.cholesky(draws.T @ draws / len(draws))
    white = np.linalg.solve(factor, draws.T).T
    return jnp.asarray(white.reshape(-1, *shape)), jnp.full((len(white),), 1.0 / len(white))


class Gaussian(AbstractPopulation):
    """A location that follows the model.

        Z_i ~ N(m_i + eps_i * theta, scale_i^2)

    `mean` m_i is [N] for a number theta, [N, d] for a vector; `sensitivity` eps_i a number, [N], [N, d] or [N, d, d].
    With the squared loss: theta_PS = m_bar / (1 - eps_bar), theta_PO = sum p (1-eps) m / sum p (1-eps)^2.
    Jin et al. 2024, Section 4.1. theta_PS attracts retraining only where |eps_bar| < 1.
    """

    mean: Numbers = per_client()
    sensitivity: Numbers = per_client()
    scale: Numbers = per_client()

    def __check_init__(self) -> None:
        check_finite("Gaussian", mean=self.mean, sensitivity=self.sensitivity, scale=self.scale)
        if self.clients < 1:
            raise ValueError("Gaussian: mean is empty; give one entry a client.")
        if is_concrete(self.scale) and np.any(np.asarray(self.scale) < 0):
            raise ValueError(f"Gaussian: scale is a standard deviation and must be >= 0; got {self.scale}.")
        d = self.model_shape()
        rows = {"mean": (d,), "sensitivity": (d, d + d), "scale": (d,)}
        for name, allowed in rows.items():
            shape = np.shape(getattr(self, name))
            if len(shape) > 1 and shape[1:] not in allowed:
                raise ValueError(
                    f"Gaussian: {name} has shape {shape}, but theta has shape {d} here (the longest of mean, "
                    f"sensitivity and scale says so); give one number a client, or {[('N', *a) for a in allowed]}."
                )

    @property
    def family(self) -> Location:
        return Location()

    def model_shape(self) -> tuple[int, ...]:
        # A matrix maps theta to a shift of the same length, so one of its axes is enough.
        shapes = (np.shape(self.mean)[1:], np.shape(self.sensitivity)[1:2], np.shape(self.scale)[1:])
        return max(shapes, key=len)

    def draw(self, key: Any, shape: Any, theta: Theta, rows: Any = None) -> Array:
        theta = jnp.asarray(theta)
        full = (*shape, *theta.shape)
        # Drawn flat: the generator's counter is then one plain range, which compiles to fewer passes.
        return jax.random.normal(key, (int(np.prod(full)),), theta.dtype).reshape(full)

    def sample(self, noise: Array, world: None, theta: Theta) -> Array:
        return self.mean + react(self.sensitivity, theta) + self.scale * noise

    def nodes(self, theta: Theta, count: int) -> tuple[Array, Array]:
        return standard_nodes(jnp.shape(theta), count)

    def stable_point(self, loss: Any, weights: Any) -> Theta | None:
        if loss is not losses.squared:
            return None
        slope, level = self._averages(weights)
        return _divide(level, slope)

    def optimal_point(self, loss: Any, weights: Any) -> Theta | None:
        if loss is not losses.squared or np.ndim(self.sensitivity) == 3:
            return None
        p, m, eps = self._rows(weights)
        level = np.sum(p * (1 - eps) * m, axis=0)
        slope = np.sum(p * (1 - eps) ** 2, axis=0)
        return _divide(np.asarray(level), np.asarray(slope))

    def _rows(self, weights: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """p_i, m_i, eps_i with one row a client and the model's shape behind."""
        clients, shape = self.clients, self.model_shape()
        fill = (1,) * len(shape)

        def rows(value: Any) -> np.ndarray:
            value = np.asarray(value, np.float64)
            if value.ndim == 1:
                value = value.reshape(-1, *fill)
            return np.broadcast_to(value, (clients, *shape))

        return np.asarray(weights, np.float64).reshape(-1, *fill), rows(self.mean), rows(self.sensitivity)

    def _averages(self, weights: Any) -> tuple[np.ndarray, np.ndarray]:
        """1 - eps_bar (a number, a vector or a matrix) and m_bar."""
        p = np.asarray(weights, np.float64)
        if np.ndim(self.sensitivity) == 3:
            eps = np.tensordot(p, np.asarray(self.sensitivity, np.float64), 1)
            mean = np.asarray(self.mean, np.float64)
            level = np.tensordot(p, mean, 1) if mean.ndim == 2 else np.full(len(eps), np.sum(p * mean))
            return np.eye(len(eps)) - eps, level
        p, m, eps = self._rows(weights)
        return np.asarray(1 - np.sum(p * eps, axis=0)), np.asarray(np.sum(p * m, axis=0))


def _divide(level: np.ndarray, slope: np.ndarray) -> np.ndarray | None:
    """level / slope, or None where the slope is singular (eps_bar = 1: there is no such point)."""
    if slope.ndim == 2:
        return None if np.linalg.cond(slope) > 1e12 else np.linalg.solve(slope, level)
    return None if np.any(np.abs(slope) < 1e-12) else np.asarray(level / slope)

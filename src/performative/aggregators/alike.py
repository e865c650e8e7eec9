"""Do clients react alike? A test on what they remember after a run."""

import dataclasses
from typing import Any

import jax
import numpy as np

from performative.reaction import Experience
from performative.types import Memory

_KEPT = 1e-4  # of the widest direction of the models, squared: what spreads less says nothing
_ROUNDING = 1e-6  # of the variance of f-hat: what is left after a fit may be rounding


@dataclasses.dataclass(frozen=True)
class Comparison:
    """How far clients' own df/dtheta lie from that of their cluster, against chance.

        apart = mean of |J_i - J|^2,      size = mean of |J|^2,      by weight, in units of the variance of J_i

    For clients that react alike `apart` is 1 on average, or less: the variance is taken too large where models moved
    more in rows that count little. `error` is then its standard error. Entries of f-hat may move together, so they
    are not counted as independent.
    """

    apart: float
    size: float
    error: float

    @property
    def excess(self) -> float:
        """How many standard errors `apart` lies above what chance explains."""
        return (self.apart - 1) / self.error

    @property
    def differ(self) -> float:
        """Standard deviation of reactions between clients, as a part of the mean reaction."""
        return _root(self.apart - 1, self.size)

    @property
    def bound(self) -> float:
        """The same with chance counted in: clients differ by no more."""
        return _root(self.apart, self.size)

    @staticmethod
    def of(jacobian: Any, known: Any, memory: Memory, weights: Any) -> "Comparison":
        """From the server's estimates [R, C, m, d] and clients' memory [R, N, ...], for R repeats of a run."""
        seen = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), _experience(memory))
        jacobian = np.where(np.asarray(known)[..., None, None], np.asarray(jacobian, np.float64), np.nan)
        apart, size, directions = _distances(seen, jacobian)
        p = np.where(np.isnan(apart), 0.0, np.asarray(weights, np.float64))
        if np.sum(p) == 0:
            return Comparison(1.0, 0.0, float("inf"))
        p = p / np.sum(p)
        error = np.sqrt(np.sum(p**2 * 2 / np.maximum(directions, 1)))
        return Comparison(float(np.nansum(p * apart)), float(np.nansum(p * size)), float(error))


def _root(part: float, whole: float) -> float:
    """sqrt(part / whole); 0 for a part that is not positive, inf where there is no whole."""
    return 0.0 if part <= 0 else float(np.sqrt(part / whole)) if whole > 0 else float("inf")


def _experience(memory: Memory) -> Experience:
    """What clients have seen, wherever their estimator keeps it."""

    def found(node: Any) -> bool:
        return isinstance(node, Experience)

    return next(node for node in jax.tree.leaves(memory, is_leaf=found) if found(node))


def _distances(seen: Any, jacobian: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """|J_i - J|^2 and |J|^2 of each client, for a mean entry and direction, and its directions; NaN where unknown."""
    cross, spread, rows = seen.moments.cross, seen.spread, 1 / seen.crowding
    values, vectors = np.linalg.eigh(seen.moments.gram)
    keep = (values > _KEPT * values[..., -1:]) & (values > 0)
    directions = np.sum(keep, axis=-1)
    told = (seen.count > 1) & (directions > 0) & (rows > directions + 1)
    width = np.where(keep, values, np.inf)
    own = cross @ vectors / width[..., None, :]  # [R, N, m, d]
    left = spread - np.sum(own**2 * values[..., None, :], axis=-1)
    free = np.where(told, rows - directions - 1, np.nan)
    noise = np.maximum(left, _ROUNDING * spread) * (rows / free)[..., None]
    use = keep[..., None, :] & (spread > 0)[..., None]
    variance = np.where(noise > 0, noise, np.nan)[..., None] / np.where(use, values[..., None, :], np.nan)
    unit = np.where(use, rows[..., None, None] / variance, 0)
    many = np.sum(use, axis=(-2, -1))
    cluster = jacobian[:, None] @ vectors[:, :, None]  # [R, N, C, m, d]
    apart = np.sum((own[:, :, None] - cluster) ** 2 * unit[:, :, None], axis=(-2, -1))
    nearest = np.argmin(np.where(np.isnan(apart), np.inf, apart), axis=-1)[..., None]
    size = np.sum(cluster**2 * unit[:, :, None], axis=(-2, -1))
    with np.errstate(invalid="ignore", divide="ignore"):
        picked = (np.take_along_axis(value, nearest, -1)[..., 0] / many for value in (apart, size))
        return *(np.where(told & (many > 0), value, np.nan) for value in picked), directions

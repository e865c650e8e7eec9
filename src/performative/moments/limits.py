"""What rounds that stay alike do in the long run: whether mean and spread settle, how fast, and at what law.

Some directions are never taken (SCAFFOLD keeps c = sum_i p_i c_i for ever), and say nothing about a run: all of it is
about the directions that a run from its start can reach.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from performative.moments.outcome import ONE
from performative.moments.recursion import AbstractRound, Law, roll

# A direction shorter than this, beside those of length one, is rounding.
_TINY = 1e-9
# Up to so many pairs of directions the map of covariances is written down as a matrix.
_DENSE = 1200
_TURNS, _CLOSE = 20_000, 1e-13


class Limits(eqx.Module):
    """Of P rounds after which all repeats.

    Attributes:
        mean_radius, second_radius: spectral radius of the map of means, and of second moments, for one round
        law: the stationary law, None where the second moments do not settle
    """

    mean_radius: float
    second_radius: float
    law: Law | None


def limits(turn: "Turn", start: np.ndarray) -> Limits:
    """If all went on for ever by these rounds, one after another, from (1, s, R) = `start` on."""
    directions = reachable(turn, start)
    r, per_round = directions.shape[1], 1.0 / turn.period
    first = turn.mean(start)
    T = directions.T @ np.stack([turn.mean(start + v) - first for v in directions.T], axis=1) if r else np.zeros((0, 0))
    mean_radius = float(np.abs(np.linalg.eigvals(T)).max(initial=0.0))
    second_radius, solve = _second(turn, directions)
    found = None
    if max(mean_radius, second_radius) < ONE:
        mean = start + directions @ np.linalg.solve(np.eye(r) - T, directions.T @ (first - start))
        added = directions.T @ turn(mean, turn.nothing)[1] @ directions
        found = Law(jnp.asarray(mean), jnp.asarray(directions @ solve(added) @ directions.T))
    return Limits(mean_radius**per_round, second_radius**per_round, found)


class Turn:
    """A whole period of rounds: maps [R, ...], of which the first `period` count."""

    def __init__(self, maps: AbstractRound, period: int, size: int):
        self.maps, self.period, self.nothing = maps, period, np.zeros((size, size))

    def __call__(self, mean: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance after it."""
        after = roll(self.maps, np.asarray(self.period), Law(jnp.asarray(mean), jnp.asarray(covariance)))
        means, covariances = (np.asarray(part[self.period - 1]) for part in after)
        return means, covariances

    def mean(self, x: np.ndarray) -> np.ndarray:
        """What becomes of a mean."""
        return self(x, self.nothing)[0]

    def second(self, B: np.ndarray) -> np.ndarray:
        """What becomes of second moments."""
        return self(np.zeros(len(B)), B)[1]


def reachable(turn: Turn, x: np.ndarray) -> np.ndarray:
    """Orthonormal directions [D, r] in which runs from x can differ, or come to differ from it."""
    Q = (x / np.linalg.norm(x))[:, None]
    while Q.shape[1] < len(x):
        after = turn.second(Q @ Q.T)
        rest = after - Q @ (Q.T @ after)
        left, size, _ = np.linalg.svd(rest)
        new = left[:, size > _TINY * max(float(np.abs(after).max()), 1.0)]
        if not new.shape[1]:
            break
        Q = np.linalg.qr(np.concatenate([Q, new], axis=1))[0]
    # Those among them that leave the constant 1 alone.
    row = Q[:1]
    inside = np.linalg.svd(row)[2][1:].T if np.linalg.norm(row) > _TINY else np.eye(Q.shape[1])
    return Q @ inside


def _second(turn: Turn, directions: np.ndarray) -> tuple[float, Callable[[np.ndarray], np.ndarray]]:
    """Spectral radius of the map of covariances along the directions, and what solves X = map(X) + added."""
    r = directions.shape[1]
    if r == 0:
        return 0.0, lambda added: added

    def apply(B: np.ndarray) -> np.ndarray:
        return directions.T @ turn.second(directions @ B @ directions.T) @ directions

    i, j = np.triu_indices(r)
    if len(i) > _DENSE:
        return _by_turns(apply, r)
    matrix = np.empty((len(i), len(i)))
    for k in range(len(i)):
        B = np.zeros((r, r))
        B[i[k], j[k]] = B[j[k], i[k]] = 1.0
        matrix[:, k] = apply(B)[i, j]

    def solve(added: np.ndarray) -> np.ndarray:
        out = np.zeros((r, r))
        out[i, j] = out[j, i] = np.linalg.solve(np.eye(len(matrix)) - matrix, added[i, j])
        return out

    return float(np.abs(np.linalg.eigvals(matrix)).max()), solve


def _by_turns(apply: Callable[[np.ndarray], np.ndarray], r: int) -> tuple[float, Callable[[np.ndarray], np.ndarray]]:
    """The same where the matrix is too large: a map that keeps covariances has its radius as an eigenvalue."""
    from scipy.sparse.linalg import LinearOperator, gmres

    X, last, size = np.eye(r) / r, 0.0, 1.0
    for _ in range(_TURNS):
        X = apply(X)
        last, size = size, float(np.trace(X))
        if size == 0.0 or abs(size - last) <= _CLOSE * size:
            break
        X = X / size

    def solve(added: np.ndarray) -> np.ndarray:
        linear = LinearOperator((r * r, r * r), lambda x: x - apply(x.reshape(r, r)).ravel())
        return gmres(linear, added.ravel(), rtol=1e-12, restart=60, maxiter=60)[0].reshape(r, r)

    return size, solve

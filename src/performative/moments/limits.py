"""What rounds that stay alike do in the long run: whether mean and spread settle, how fast, and at what law.

Some directions are never taken (SCAFFOLD keeps c = sum_i p_i c_i for ever), and say nothing about a run: all of it is
about the directions that a run from its start can reach.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from performative.moments.recursion import AbstractRound, Law

# A direction shorter than this, beside those of length one, is rounding.
_TINY = 1e-9
# Up to so many pairs of directions the map of covariances is written down as a matrix.
_DENSE = 1200
_TURNS, _CLOSE = 20_000, 1e-13
# Numbers of laws that are moved at once.
_NUMBERS = 1 << 20


class Limits(eqx.Module):
    """Of P rounds after which all repeats.

    Attributes:
        mean_radius, second_radius: spectral radius of the map of means, and of second moments, for one round
        law: the stationary law, None where the second moments do not settle
    """

    mean_radius: float
    second_radius: float
    law: Law | None


def limits(maps: AbstractRound, start: Law) -> Limits:
    """If all went on for ever by these maps, one after another, from `start` on."""
    x0 = np.asarray(start.mean)
    turn = Turn(maps, len(x0))
    directions = reachable(turn, x0)
    r, period = directions.shape[1], len(jax.tree.leaves(maps)[0])
    first = turn.means(x0[None])[0]
    T = directions.T @ (turn.means(x0 + directions.T) - first).T
    mean_radius = float(np.abs(np.linalg.eigvals(T)).max(initial=0.0))
    second_radius, solve = _second(turn, directions)
    found = None
    if max(mean_radius, second_radius) < 1.0:
        mean = x0 + directions @ np.linalg.solve(np.eye(r) - T, directions.T @ (first - x0))
        added = directions.T @ turn.spread(mean) @ directions
        found = Law(jnp.asarray(mean), jnp.asarray(directions @ solve(added) @ directions.T))
    return Limits(mean_radius ** (1 / period), second_radius ** (1 / period), found)


class Turn:
    """A whole period, of several laws at a time: one program for all that is asked."""

    def __init__(self, maps: AbstractRound, size: int):
        self.maps, self.size = maps, size
        self.batch = int(np.clip(_NUMBERS // self.size**2, 1, 32))

    def __call__(self, mean: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[n, D] and [n, D, D] after the period."""
        out = []
        for first in range(0, len(mean), self.batch):
            rows = slice(first, first + self.batch)
            missing = self.batch - len(mean[rows])
            laws = Law(
                jnp.asarray(np.pad(mean[rows], ((0, missing), (0, 0)))),
                jnp.asarray(np.pad(covariance[rows], ((0, missing), (0, 0), (0, 0)))),
            )
            after = play(self.maps, laws)
            out.append([np.asarray(leaf)[: self.batch - missing] for leaf in (after.mean, after.covariance)])
        means, covariances = zip(*out, strict=True)
        return np.concatenate(means), np.concatenate(covariances)

    def means(self, x: np.ndarray) -> np.ndarray:
        """What becomes of these means."""
        return np.concatenate([self(one[None], np.zeros((1, self.size, self.size)))[0] for one in x]) if len(x) else x

    def spread(self, x: np.ndarray) -> np.ndarray:
        """The covariance that comes about from x."""
        return self(x[None], np.zeros((1, self.size, self.size)))[1][0]

    def seconds(self, B: np.ndarray) -> np.ndarray:
        """What becomes of these second moments."""
        return self(np.zeros((len(B), self.size)), B)[1]


@jax.jit
def play(maps: AbstractRound, laws: Law) -> Law:
    """Laws [n, ...] after one round of each map."""

    def once(laws: Law, one: AbstractRound) -> tuple[Law, None]:
        return jax.vmap(lambda law: one.advance(law))(laws), None

    return jax.lax.scan(once, laws, maps)[0]


def reachable(turn: Turn, x: np.ndarray) -> np.ndarray:
    """Orthonormal directions [D, r] in which runs from x can differ, or come to differ from it."""
    Q = (x / np.linalg.norm(x))[:, None]
    while Q.shape[1] < len(x):
        after = turn.seconds((Q @ Q.T)[None])[0]
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
        return directions.T @ turn.seconds(directions @ B @ directions.T) @ directions

    i, j = np.triu_indices(r)
    if len(i) > _DENSE:
        return _by_turns(apply, r)
    B = np.zeros((len(i), r, r))
    B[np.arange(len(i)), i, j] = B[np.arange(len(i)), j, i] = 1.0
    matrix = apply(B)[:, i, j].T

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
        X = apply(X[None])[0]
        last, size = size, float(np.trace(X))
        if size == 0.0 or abs(size - last) <= _CLOSE * size:
            break
        X = X / size

    def solve(added: np.ndarray) -> np.ndarray:
        linear = LinearOperator((r * r, r * r), lambda x: x - apply(x.reshape(1, r, r)).ravel())
        return gmres(linear, added.ravel(), rtol=1e-12, restart=60, maxiter=60)[0].reshape(r, r)

    return size, solve

"""The long run of repeating rounds: whether mean and covariance settle, how fast, and the stationary distribution.

Some directions are never taken (SCAFFOLD always keeps c = sum_i p_i c_i) and are irrelevant to a run: everything here
refers to the directions that a run can reach from its start.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from performative.moments.client import Deviations
from performative.moments.outcome import ONE
from performative.moments.recursion import AbstractRound, Law

# A direction shorter than this, relative to unit directions, is roundoff.
_TINY = 1e-9
# Up to this many pairs of directions the map of covariances is formed as a matrix, and its eigenvalues computed.
_DENSE, _EIGEN = 4000, 150
_TURNS, _CLOSE = 20_000, 1e-12
# Distributions propagated together: at most this many, and with about this many numbers of the map in total.
_BLOCK, _NUMBERS = 64, 1 << 27
# Smaller maps are applied sequentially: a batched program takes longer to compile.
_LARGE = 1 << 20


class Limits(eqx.Module):
    """The long run of a period of P rounds.

    Attributes:
        mean_radius, second_radius: spectral radius of the map of means, and of second moments, for one round
        law: the stationary distribution, None if the second moments do not settle
    """

    mean_radius: float
    second_radius: float
    law: Law | None


def limits(turn: "Turn", start: np.ndarray, directions: np.ndarray | None = None) -> Limits:
    """The limit if these rounds repeat forever, starting from (1, s, R) = `start`.

    `directions` [D, r] that runs can take are computed if not given.
    """
    directions, T, mean = mean_limit(turn, start, directions)
    radius = float(np.abs(np.linalg.eigvals(T)).max(initial=0.0))
    second_radius, solve = _second(turn, directions)
    found, per_round = None, 1.0 / turn.period
    if mean is not None and second_radius < ONE:
        added = directions.T @ turn.added(mean) @ directions
        found = Law(jnp.asarray(mean), jnp.asarray(directions @ solve(added) @ directions.T))
    return Limits(radius**per_round, second_radius**per_round, found)


def mean_limit(
    turn: "Turn", start: np.ndarray, directions: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Directions [D, r] that runs can take, the map of means along them, and their limit; None if there is none."""
    if directions is None:
        directions = turn.without_time(reachable(turn, start))
    r = directions.shape[1]
    first, *moved = turn.means(np.concatenate([start[None], start + directions.T]))
    T = directions.T @ (np.stack(moved, axis=1) - first[:, None]) if r else np.zeros((0, 0))
    if np.abs(np.linalg.eigvals(T)).max(initial=0.0) >= ONE:
        return directions, T, None
    return directions, T, start + directions @ np.linalg.solve(np.eye(r) - T, directions.T @ (first - start))


class Turn:
    """A whole period of rounds: maps [R, ...], of which the first `period` count; places of (1, s, R) that are time."""

    def __init__(self, maps: AbstractRound, period: int, size: int, time: tuple[int, ...] = ()):
        self.maps, self.period, self.size, self.time = maps, period, size, time

    def means(self, x: np.ndarray) -> np.ndarray:
        """Means [n, D] after a period."""
        return self._after(x, np.zeros((len(x), self.size, self.size)))[0]

    def added(self, mean: np.ndarray) -> np.ndarray:
        """The covariance after a period of what was deterministic before."""
        return self._after(mean[None], np.zeros((1, self.size, self.size)))[1][0]

    def seconds(self, B: np.ndarray) -> np.ndarray:
        """Second moments [n, D, D] after a period."""
        return self._after(np.zeros((len(B), self.size)), B)[1]

    def _after(self, means: np.ndarray, covariances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Propagate n distributions in batches of one size, to share one program; large maps have another for one."""
        block = int(np.clip(_NUMBERS // max(_made(self.maps), 1), 1, _BLOCK))
        if _is_large(self.maps) and len(means) == 1:
            block = 1
        found = []
        for first in range(0, len(means), block):
            some = [part[first : first + block] for part in (means, covariances)]
            filled = [np.concatenate([part, np.zeros((block - len(part), *part.shape[1:]))]) for part in some]
            laws = Law(*map(jnp.asarray, filled))
            after = _through(self.maps, np.asarray(self.period), np.asarray(len(some[0])), laws)
            found.append([np.asarray(part)[: len(some[0])] for part in (after.mean, after.covariance)])
        mean, covariance = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return mean, covariance

    def without_time(self, directions: np.ndarray) -> np.ndarray:
        """Directions [D, r] without time, which grows forever on its own."""
        if not self.time or not directions.shape[1]:
            return directions
        left, size, _ = np.linalg.svd(np.delete(directions, self.time, axis=0), full_matrices=False)
        return np.insert(left[:, size > _TINY], np.asarray(self.time) - np.arange(len(self.time)), 0.0, axis=0)


def _made(maps: AbstractRound) -> int:
    """Approximate number of intermediate values per distribution: as in a round's maps, without stored products."""

    def count(leaf: Any) -> int:
        parts = (leaf.added, leaf.nodes) if isinstance(leaf, Deviations) else leaf
        return sum(part.size // len(part) for part in jax.tree.leaves(parts))

    return sum(map(count, jax.tree.leaves(maps, is_leaf=lambda leaf: isinstance(leaf, Deviations))))


def _is_large(maps: AbstractRound) -> bool:
    return sum(leaf.size for leaf in jax.tree.leaves(maps)) > _LARGE


@eqx.filter_jit
def _through(
    maps: AbstractRound, period: Int[Array | np.ndarray, ""], count: Int[Array | np.ndarray, ""], laws: Law
) -> Law:
    """The first `count` of n distributions after a period."""

    def one(law: Law) -> Law:
        return jax.lax.fori_loop(0, period, lambda r, law: jax.tree.map(lambda leaf: leaf[r], maps).advance(law), law)

    if _is_large(maps):
        return jax.vmap(one)(laws)

    def next(k: Array, laws: Law) -> Law:
        after = one(jax.tree.map(lambda leaf: leaf[k], laws))
        return jax.tree.map(lambda rows, new: rows.at[k].set(new), laws, after)

    return jax.lax.fori_loop(0, count, next, laws)


def reachable(turn: Turn, x: np.ndarray) -> np.ndarray:
    """Orthonormal directions [D, r] in which runs from x can differ from each other or from x."""
    Q = (x / np.linalg.norm(x))[:, None]
    while Q.shape[1] < len(x):
        after = turn.seconds((Q @ Q.T)[None])[0]
        rest = after - Q @ (Q.T @ after)
        left, size, _ = np.linalg.svd(rest)
        new = left[:, size > _TINY * max(float(np.abs(after).max()), 1.0)]
        if not new.shape[1]:
            break
        Q = np.linalg.qr(np.concatenate([Q, new], axis=1))[0]
    # Those among them that leave the constant 1 unchanged.
    row = Q[:1]
    inside = np.linalg.svd(row)[2][1:].T if np.linalg.norm(row) > _TINY else np.eye(Q.shape[1])
    return Q @ inside


def _second(turn: Turn, directions: np.ndarray) -> tuple[float, Callable[[np.ndarray], np.ndarray]]:
    """Spectral radius of the map of covariances along the directions, and what solves X = map(X) + added."""
    r = directions.shape[1]
    if r == 0:
        return 0.0, lambda added: added

    i, j = np.triu_indices(r)
    if len(i) > _DENSE:
        return _by_turns(
            lambda B: directions.T @ turn.seconds((directions @ B @ directions.T)[None])[0] @ directions, r
        )
    matrix = np.empty((len(i), len(i)))
    for first in range(0, len(i), _BLOCK):
        k = np.arange(first, min(first + _BLOCK, len(i)))
        B = np.zeros((len(k), r, r))
        B[k - first, i[k], j[k]] = B[k - first, j[k], i[k]] = 1.0
        after = directions.T @ turn.seconds(directions @ B @ directions.T) @ directions
        matrix[:, k] = after[:, i, j].T

    def solve(added: np.ndarray) -> np.ndarray:
        return _square(np.linalg.solve(np.eye(len(matrix)) - matrix, added[i, j]), i, j, r)

    if len(matrix) <= _EIGEN:
        return float(np.abs(np.linalg.eigvals(matrix)).max()), solve
    return _radius(lambda x: matrix @ x, np.eye(r)[i, j], lambda x: _square(x, i, j, r)), solve


def _square(x: np.ndarray, i: np.ndarray, j: np.ndarray, r: int) -> np.ndarray:
    """A symmetric matrix from its upper triangle."""
    out = np.zeros((r, r))
    out[i, j] = out[j, i] = x
    return out


def _by_turns(apply: Callable[[np.ndarray], np.ndarray], r: int) -> tuple[float, Callable[[np.ndarray], np.ndarray]]:
    """As `_second`, matrix-free."""
    from scipy.sparse.linalg import LinearOperator, gmres

    def flat(x: np.ndarray) -> np.ndarray:
        return apply(x.reshape(r, r)).ravel()

    def solve(added: np.ndarray) -> np.ndarray:
        linear = LinearOperator((r * r, r * r), lambda x: x - flat(x))
        return gmres(linear, added.ravel(), rtol=1e-12, restart=60, maxiter=60)[0].reshape(r, r)

    return _radius(flat, np.eye(r).ravel(), lambda x: x.reshape(r, r)), solve


def _radius(
    apply: Callable[[np.ndarray], np.ndarray], start: np.ndarray, matrix: Callable[[np.ndarray], np.ndarray]
) -> float:
    """A map that preserves covariances has its spectral radius as an eigenvalue, with a covariance as eigenvector."""
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigs

    whole = LinearOperator((len(start), len(start)), apply, dtype=np.float64)
    try:
        return float(np.abs(eigs(whole, 1, v0=start, tol=_CLOSE, return_eigenvectors=False)[0]))
    except ArpackError:
        X, size = start, 1.0
    for _ in range(_TURNS):
        X = apply(X / size)
        last, size = size, float(np.trace(matrix(X)))
        if size == 0.0 or abs(size - last) <= _CLOSE * size:
            break
    return size

"""Quadrature rules for expectations over normal data, and which of several sets of draws they use."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from performative.facts import Uncertified
from performative.populations.normal_rules import grid_rule, hermite_rule, polynomial_rule
from performative.types import Noise

# Number of independent sets of draws for an expectation; their disagreement estimates the error of one.
BATCHES = 8
# Nodes per coordinate in one and two dimensions: exact for polynomials up to degree 63.
_HERMITE_NODES = 32
# NumPy's roots are accurate up to this many.
_MOST = 100
# Above this many draws, one dimension is divided into equal steps between -9 and 9 standard deviations: such a fine
# grid resolves kinks and steep slopes, and integrates smooth functions to rounding error.
_FINE, _REACH = 2048, 9.0
# Up to this many dimensions a rotated grid beats draws with the same number of points.
_GRID = 4


class Count(int):
    """The number of draws a rule may use, and in `batch` which of several independent sets of draws.

    A plain number means the set that is used to find points. A rule that draws passes this on to `draw_key` or
    `standard_nodes`; `batched` then reports that it did.
    """

    _batch: Array | int
    batched: bool

    def __new__(cls, count: int, batch: Array | int) -> "Count":
        made = super().__new__(cls, count)
        made._batch, made.batched = batch, False
        return made

    @property
    def batch(self) -> Array | int:
        """0, 1, ..., BATCHES - 1; may be traced."""
        self.batched = True
        return self._batch


class Polynomial(int):
    """Replaces a number of draws: requests a rule that is exact for polynomials up to this degree, `Polynomial(5)`.

    `standard_nodes` has such rules, and tables are always exact. Weights may be negative. If there is no rule,
    `Uncertified` is raised.
    """


def draw_key(count: int) -> PRNGKeyArray:
    """The key of a rule's fixed draws: the same each time, but different for each batch of a `Count`."""
    if isinstance(count, Polynomial):
        raise Uncertified(f"expectations are taken over draws, which are not exact for polynomials of degree {count}")
    key = jax.random.key(0)
    return jax.random.fold_in(key, count.batch) if isinstance(count, Count) else key


def with_batch(count: int, like: int) -> int:
    """Another number of draws, of the same batch as `like`; a rule for polynomials is unchanged."""
    if isinstance(like, Polynomial):
        return like
    return Count(count, like.batch) if isinstance(like, Count) else count


def standard_nodes(shape: tuple[int, ...], count: int) -> tuple[Array, Array]:
    """Nodes and weights for E[g(X)], X standard normal of the given shape.

    One dimension: Gauss-Hermite with 32 nodes; above 2048 draws, equal steps. Two to four: a grid of Gauss-Hermite,
    32 x 32 at 2048 draws, 12 x 12 x 12, 6 x 6 x 6 x 6. More: `count` fixed antithetic draws, whitened so that mean and
    covariance are exact. Other batches of a `Count`: fewer nodes, shifted steps, a rotated grid, or other draws. A
    `Polynomial` in place of `count` returns a rule of few nodes that is exact up to its degree.
    """
    size = int(np.prod(shape))
    if isinstance(count, Count):
        made = [_standard(size, int(count), batch) for batch in range(BATCHES)]
        longest = max(len(weight) for _, weight in made)
        # A shorter rule is padded with nodes of zero weight.
        nodes = np.stack([np.pad(x, ((0, longest - len(x)), (0, 0))) for x, _ in made])
        weights = np.stack([np.pad(w, (0, longest - len(w))) for _, w in made])
        found: tuple[Any, Any] = jnp.asarray(nodes)[count.batch], jnp.asarray(weights)[count.batch]
    elif isinstance(count, Polynomial):
        found = polynomial_rule(size, int(count))
    else:
        found = _standard(size, count, 0)
    return jnp.asarray(found[0]).reshape(-1, *shape), jnp.asarray(found[1])


def in_turn(groups: Sequence[tuple[Noise, Array]]) -> tuple[Noise, ...]:
    """Randomness of several groups, given with its weights, for samples of each group in turn.

    A group has its own nodes where it is picked; elsewhere the values do not matter.
    """
    sizes = [len(weight) for _, weight in groups]

    def stretch(k: int, leaf: Array) -> Array:
        before, after = (jnp.repeat(leaf[:1], n, axis=0) for n in (sum(sizes[:k]), sum(sizes[k + 1 :])))
        return jnp.concatenate([before, leaf, after])

    return tuple(jax.tree.map(lambda leaf, k=k: stretch(k, leaf), own) for k, (own, _) in enumerate(groups))


def _standard(size: int, count: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes [n, size] and weights [n]."""
    if size == 1:
        line, weight = _steps(count // 16, batch) if count > _FINE else hermite_rule(_HERMITE_NODES - batch)
        return line[:, None], weight
    rng = np.random.default_rng(batch)
    if 1 < size <= _GRID:
        # Integer roots are not exact in floating point.
        side = max(2, int((count / 2 if size == 2 else count) ** (1.0 / size) + 1e-9))
        grid, weights = grid_rule(size, min(max(side, _HERMITE_NODES), _MOST) if size == 2 else side)
        turn = np.linalg.qr(rng.standard_normal((size, size)))[0] if batch else np.eye(size)
        return grid @ turn, weights
    half = max(count // 2, 2 * size)
    draws = rng.standard_normal((half, size))
    draws = np.concatenate([draws, -draws])
    factor = np.linalg.cholesky(draws.T @ draws / len(draws))
    return np.linalg.solve(factor, draws.T).T, np.full(len(draws), 1.0 / len(draws))


def _steps(count: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    shift = (0.5 + batch * (5**0.5 - 1) / 2) % 1.0  # multiples of the golden ratio are evenly spread
    line = (np.arange(count) + shift) * (2 * _REACH / count) - _REACH
    weight = np.exp(-(line**2) / 2)
    return line, weight / weight.sum()

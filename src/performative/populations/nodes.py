"""Rules by which expectations over normal data are taken."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

_HERMITE_NODES = 32  # exact for polynomials up to degree 63 in each coordinate


def standard_nodes(shape: tuple[int, ...], count: int) -> tuple[Array, Array]:
    """Nodes and weights for E[g(X)], X standard normal of the given shape.

    One or two dimensions: Gauss-Hermite, on a grid of 32 x 32. More: `count` fixed antithetic draws, whitened so
    that mean and covariance are exact.
    """
    size = int(np.prod(shape))
    if size in (1, 2):
        line, weight = np.polynomial.hermite_e.hermegauss(_HERMITE_NODES)
        weight = weight / weight.sum()
        if size == 1:
            return jnp.asarray(line.reshape(-1, *shape)), jnp.asarray(weight)
        grid = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1)
        return jnp.asarray(grid.reshape(-1, *shape)), jnp.asarray(np.outer(weight, weight).ravel())
    half = max(count // 2, 2 * size)
    draws = np.random.default_rng(0).standard_normal((half, size))
    draws = np.concatenate([draws, -draws])
    factor = np.linalg.cholesky(draws.T @ draws / len(draws))
    white = np.linalg.solve(factor, draws.T).T
    return jnp.asarray(white.reshape(-1, *shape)), jnp.full((len(white),), 1.0 / len(white))

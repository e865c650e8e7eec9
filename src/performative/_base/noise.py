"""Gaussian noise for privacy: fast for simulation, or integers on a grid drawn from the system's entropy.

The noise of one release is one row of `size` numbers with standard deviation 1. If the row contains integers, they
count grid steps, `GRID` of them per standard deviation: the protected value is then rounded to the same grid and the
sum is one of integers, so no bit of what a client sends reveals either summand.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PRNGKeyArray, PyTree

GRID = 1 << 14


def size_of(tree: PyTree) -> int:
    """d, the number of entries of a model or an update."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def draw_noise(key: PRNGKeyArray, like: PyTree, lead: tuple[int, ...] = ()) -> Array:
    """Standard normal rows for simulation. In float32 only 2^23 values occur: an observer can sometimes exclude one."""
    dtype = jnp.result_type(*jax.tree.leaves(like))
    return jax.random.normal(key, (*lead, size_of(like)), dtype)


def grid_step(noise: Array, deviation: Array) -> Array | None:
    """The step of the grid that a sum must lie on for this noise; None if there is no grid."""
    return deviation / GRID if jnp.issubdtype(noise.dtype, jnp.integer) else None


def add_noise(total: PyTree, noise: Array, deviation: Array) -> PyTree:
    """total + deviation * noise. With a grid, `total` counts its steps; the result does not."""
    flat, unravel = ravel_pytree(total)
    step = grid_step(noise, deviation)
    if step is None:
        return unravel(flat + deviation.astype(flat.dtype) * noise)
    noisy = (flat + noise).astype(step.dtype) * step
    leaves, structure = jax.tree.flatten(total)
    cuts = [sum(leaf.size for leaf in leaves[: i + 1]) for i in range(len(leaves) - 1)]
    parts = [part.reshape(leaf.shape) for part, leaf in zip(jnp.split(noisy, cuts), leaves, strict=True)]
    return jax.tree.unflatten(structure, parts)


def normal_rule(like: PyTree) -> tuple[Array, Array]:
    """Rows and weights that replace the draws of `draw_noise`: exact for functions quadratic in the row.

    With d numbers: +-sqrt(d) e_j, each with weight 1 / (2 d). Mean 0 and covariance I; odd moments vanish.
    """
    size, dtype = size_of(like), jnp.result_type(*jax.tree.leaves(like))
    rows = np.concatenate([np.eye(size), -np.eye(size)]) * np.sqrt(size)
    return jnp.asarray(rows, dtype), jnp.full((2 * size,), 0.5 / size, dtype)


def draws_nothing(part: object, theta: PyTree) -> tuple[None, Array]:
    """`quadrature` of a class that draws nothing: a single node. A class must opt in itself."""
    return None, jnp.ones((1,), jnp.result_type(float))

"""Gaussian noise that protects people: fast for simulation, or whole numbers on a grid drawn from the system's entropy.

Noise of one release is one row of `size` numbers of standard deviation 1. Where the row holds integers they count
steps of a grid, `GRID` of them a standard deviation: what is protected is then rounded to the same grid, and the sum
is one of integers, so that no bit of what a client sends tells what was added to what.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PRNGKeyArray, PyTree

GRID = 1 << 14


def size_of(tree: PyTree) -> int:
    """d, how many numbers a model or an update holds."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def draw_noise(key: PRNGKeyArray, like: PyTree, lead: tuple[int, ...] = ()) -> Array:
    """Standard normal rows for simulation. A float32 has 2^23 of them: what they hide can sometimes be ruled out."""
    dtype = jnp.result_type(*jax.tree.leaves(like))
    return jax.random.normal(key, (*lead, size_of(like)), dtype)


def grid_step(noise: Array, deviation: Array) -> Array | None:
    """The grid that a sum has to lie on for this noise; None where it need not."""
    return deviation / GRID if jnp.issubdtype(noise.dtype, jnp.integer) else None


def add_noise(total: PyTree, noise: Array, deviation: Array) -> PyTree:
    """total + deviation * noise. Where there is a grid, `total` counts its steps, and the result no longer does."""
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
    """Rows and weights in the place of what `draw_noise` draws: exact for functions that are quadratic in the row.

    With d numbers: +-sqrt(d) e_j, each of weight 1 / (2 d). Mean 0 and covariance I; odd moments vanish.
    """
    size, dtype = size_of(like), jnp.result_type(*jax.tree.leaves(like))
    rows = np.concatenate([np.eye(size), -np.eye(size)]) * np.sqrt(size)
    return jnp.asarray(rows, dtype), jnp.full((2 * size,), 0.5 / size, dtype)


def draws_nothing(part: object, theta: PyTree) -> tuple[None, Array]:
    """`quadrature` of a class that draws nothing: a single node. A class declares it itself."""
    return None, jnp.ones((1,), jnp.result_type(float))

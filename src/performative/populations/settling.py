"""The fixed point to which a world's memory converges while one model stays deployed."""

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from performative.types import World

# Periods after which a world that still moves counts as non-convergent.
SPELLS = 10_000
# A world has converged if a period moves it by less than this many units in the last place.
_UNITS = 64
# For derivatives, memories of up to this many numbers are solved with a matrix, longer ones by iteration.
_DENSE = 512


def settled(move: Callable[[World], World], world: World) -> World:
    """The fixed point w = move(w) reached from `world` under one model.

    Numbers are NaN if it has not converged after 10,000 periods. Derivatives are those of the fixed point (implicit
    function theorem), not of the iterations, so they require a limit that does not depend on the initial memory.
    """
    if not jax.tree.leaves(world):
        return move(world)
    start, shaped = flatten_world(world)
    size = jnp.max(jnp.abs(start))

    def gap(x: Array) -> Array:
        return flatten_world(move(shaped(x)))[0] - x

    def spells(gap: Callable[[Array], Array], x: Array) -> tuple[Array, Array]:
        def goes_on(carry: tuple[Array, Array, Array]) -> Array:
            x, step, count = carry
            return (count < SPELLS) & jnp.all(jnp.isfinite(step)) & ~_rests(x, step, size)

        def spell(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            x, step, count = carry
            return x + step, gap(x + step), count + 1

        x, step, _ = jax.lax.while_loop(goes_on, spell, (x, gap(x), jnp.zeros((), jnp.int32)))
        return x + step, jnp.where(_rests(x, step, size), 0, jnp.nan).astype(x.dtype)

    root, unrest = jax.lax.custom_root(gap, start, spells, _solve, has_aux=True)
    found = shaped(root + unrest)
    # Non-floating leaves cannot be NaN.
    return jax.tree.map(lambda a, b: a if _floating(a) else b, found, shaped(root))


def flatten_world(world: World) -> tuple[Float[Array, " n"], Callable[[Array], World]]:
    """A world as one vector of floats, integers included, and its inverse."""
    leaves, structure = jax.tree.flatten(jax.tree.map(jnp.asarray, world))
    # Only the shapes of leaves are kept, so the inverse works for other worlds and under other transformations.
    like = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    floats = [leaf.dtype for leaf in like if _floating(leaf)]
    dtype = max(floats, key=lambda kind: jnp.finfo(kind).bits, default=jnp.result_type(float))
    cuts = np.cumsum([0, *(leaf.size for leaf in like)])

    def shaped(vector: Array) -> World:
        pieces = [vector[a:b] for a, b in itertools.pairwise(cuts)]
        parts = [
            (piece if _floating(leaf) else jnp.rint(piece)).reshape(leaf.shape).astype(leaf.dtype)
            for piece, leaf in zip(pieces, like, strict=True)
        ]
        return jax.tree.unflatten(structure, parts)

    return jnp.concatenate([leaf.astype(dtype).ravel() for leaf in leaves]), shaped


def _rests(x: Float[Array, " n"], step: Float[Array, " n"], size: Float[Array, ""]) -> Bool[Array, ""]:
    size = jnp.maximum(size, jnp.max(jnp.abs(x)))
    return jnp.max(jnp.abs(step)) <= _UNITS * jnp.finfo(x.dtype).eps * size


def _solve(gap: Callable[[Array], Array], y: Float[Array, " n"]) -> Float[Array, " n"]:
    """x with gap(x) = J x - x = y, gap linear."""
    if y.shape[0] <= _DENSE:
        return jnp.linalg.solve(jax.jacfwd(gap)(y), y)

    def iterate(gap: Callable[[Array], Array], y: Array) -> Array:
        """x <- J x - y, which converges if the world does."""

        def spell(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            x, _, count = carry
            return x + gap(x) - y, gap(x) - y, count + 1

        def goes_on(carry: tuple[Array, Array, Array]) -> Array:
            x, step, count = carry
            return (count < SPELLS) & ~_rests(x, step, jnp.max(jnp.abs(y)))

        return jax.lax.while_loop(goes_on, spell, (-y, y, jnp.zeros((), jnp.int32)))[0]

    return jax.lax.custom_linear_solve(gap, y, iterate, iterate)


def _floating(leaf: Array | jax.ShapeDtypeStruct) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jnp.floating))

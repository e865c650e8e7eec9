"""Bound what one person can add to a sum."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from performative._base.checks import check_number, check_rule
from performative._base.noise import size_of
from performative.types import Batch, Loss, Numbers, Theta, squared_norm

# Memory for per-sample gradients; larger batches are processed in blocks.
_BYTES = 1 << 26


def check_noise(owner: str, clip: dict[str, Numbers], noise_multiplier: Numbers) -> None:
    """Reject a clip that is not positive or a multiplier that is negative."""
    check_number(owner, **clip, noise_multiplier=noise_multiplier)
    check_rule(owner, "must be above 0", **clip)
    check_rule(owner, "must not be negative", noise_multiplier=noise_multiplier)


class ClippedSum(eqx.Module):
    """Sums over a batch: of clipped gradients (in grid steps, if any), of unclipped ones, and counts."""

    total: Theta
    whole: Theta
    clipped: Array
    rejected: Array


def safe_norm(tree: PyTree) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """|tree|, even if its square overflows, and whether all of it is finite."""
    dtype = jnp.result_type(*jax.tree.leaves(tree))
    shrink = jnp.asarray(float(jnp.finfo(dtype).tiny) ** 0.58, dtype)
    square = squared_norm(tree)
    small = squared_norm(jax.tree.map(lambda leaf: leaf * shrink.astype(leaf.dtype), tree))
    finite = jnp.isfinite(small)
    return jnp.where(jnp.isfinite(square), jnp.sqrt(square), jnp.sqrt(small) / shrink), finite


def clip_factor(tree: PyTree, clip: Array) -> tuple[Array, Array, Array]:
    """min(1, clip / |tree|), 0 if non-finite; whether it is below 1; whether all is finite.

    The norm is computed in units of the clip: with a tiny clip the squares would underflow.
    """
    length, finite = safe_norm(jax.tree.map(lambda leaf: leaf / clip.astype(leaf.dtype), tree))
    return jnp.where(finite, jnp.minimum(1, 1 / length), 0), finite & (length > 1), finite


def room_on_grid(clip: Array, step: Array | None, like: PyTree) -> Array:
    """The clip to use, such that a vector rounded to the grid afterwards is still no longer than `clip`."""
    if step is None:
        return clip
    return jnp.maximum(clip - step * math.sqrt(size_of(like)) / 2, 0) * (1 - 1e-6)


def to_grid(tree: PyTree, step: Array | None) -> PyTree:
    """Round to integer grid steps; the tree itself if there is no grid."""
    if step is None:
        return tree
    return jax.tree.map(lambda leaf: jnp.round(leaf / step.astype(leaf.dtype)).astype(jnp.int32), tree)


def clip_tree(tree: PyTree, clip: Array, step: Array | None = None) -> tuple[PyTree, Array, Array]:
    """clip(v) = min(1, clip / |v|) v, whether it was clipped, and whether it was dropped as non-finite."""
    factor, shortened, finite = clip_factor(tree, room_on_grid(clip, step, tree))
    kept = jax.tree.map(lambda leaf: jnp.where(finite, leaf, 0) * factor.astype(leaf.dtype), tree)
    return to_grid(kept, step), shortened, ~finite


def clipped_sum(
    loss: Loss, theta: Theta, batch: Batch, clip: Array, step: Array | None = None, block: int | None = None
) -> ClippedSum:
    """sum_j clip(grad l(theta; z_j)) over the rows that count, `block` samples at a time."""
    rows = batch.rows
    if block is None:
        block = max(1, _BYTES // (size_of(theta) * jnp.result_type(*jax.tree.leaves(theta)).itemsize))
    mask = jnp.ones(rows, bool) if batch.mask is None else batch.mask
    if block >= rows:
        return _sum_block(loss, theta, batch.z, mask, clip, step)
    blocks = -(-rows // block)
    # Padding rows of the last block repeat the first row and do not count.
    index = jnp.where(jnp.arange(blocks * block) < rows, jnp.arange(blocks * block), 0).reshape(blocks, block)
    counts = (jnp.arange(blocks * block) < rows).reshape(blocks, block)

    def add(sums: ClippedSum, at: tuple[Array, Array]) -> tuple[ClippedSum, None]:
        pick, real = at
        z = jax.tree.map(lambda leaf: leaf[pick], batch.z)
        return jax.tree.map(jnp.add, sums, _sum_block(loss, theta, z, mask[pick] & real, clip, step)), None

    first = jax.tree.map(lambda leaf: leaf[:block], batch.z)
    shapes = jax.eval_shape(lambda: _sum_block(loss, theta, first, mask[:block], clip, step))
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return jax.lax.scan(add, zeros, (index, counts))[0]


def _sum_block(loss: Loss, theta: Theta, z: PyTree, mask: Array, clip: Array, step: Array | None) -> ClippedSum:
    gradients = jax.vmap(jax.grad(loss), in_axes=(None, 0))(theta, z)
    bound = room_on_grid(clip, step, theta)
    factor, shortened, finite = jax.vmap(lambda gradient: clip_factor(gradient, bound))(gradients)
    here = mask & finite
    factor = jnp.where(mask, factor, 0)
    sound = jax.tree.map(lambda g: jnp.where(here.reshape((-1,) + (1,) * (g.ndim - 1)), g, 0), gradients)

    def weighted(weights: Array) -> Theta:
        return jax.tree.map(lambda g: jnp.tensordot(weights.astype(g.dtype), g, axes=1, precision="highest"), sound)

    if step is None:
        total = weighted(factor)
    else:
        scaled = jax.tree.map(lambda g: g * factor.astype(g.dtype).reshape((-1,) + (1,) * (g.ndim - 1)), sound)
        total = jax.tree.map(lambda g: jnp.sum(g, axis=0, dtype=jnp.int32), to_grid(scaled, step))
    return ClippedSum(
        total, weighted(here), jnp.sum(mask & shortened, dtype=jnp.int32), jnp.sum(mask & ~finite, dtype=jnp.int32)
    )

"""A fused 3x3 convolution, ReLU and 2x2 max-pooling, plain and as one matrix product."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

Image = Float[Array, "h w c"]
Kernel = Float[Array, "3 3 c d"]


@jax.jit
def convolve_relu_halve(x: Image, kernel: Kernel, bias: Float[Array, " d"]) -> Array:
    """The maxima of 2x2 windows of relu(conv(x) + bias); an odd last row or column is left out.

    The engine recognizes it by its name, and can replace it by `as_product`.
    """
    out = lax.conv_general_dilated(
        x[None], kernel, (1, 1), ((1, 1), (1, 1)), dimension_numbers=("NHWC", "HWIO", "NHWC")
    )[0]
    return lax.reduce_window(jax.nn.relu(out + bias), -jnp.inf, lax.max, (2, 2, 1), (2, 2, 1), "VALID")


HALVING = "convolve_relu_halve"


def as_product(x: Image, kernel: Kernel, bias: Float[Array, " d"]) -> Array | None:
    """`convolve_relu_halve` as one matrix product; None for odd sizes.

        y[p, q, (a, b), :] = patch[p, q] W,      patch[p, q] = the 4x4 pixels under the window (p, q),
        W[(i, j), (a, b)] = kernel[i - a, j - b], or 0 outside,      out = relu(max over (a, b) of y + bias)

    A window of four outputs shares its 4x4 inputs, so patches take 16/36 of the memory of one patch per output, for
    16/9 of the products: on a GPU this is memory-bound.
    """
    height, width, channels = x.shape
    if height % 2 or width % 2:
        return None
    rows, columns = height // 2, width // 2
    # Cells of 2x2 pixels: a patch consists of four, so it is copied in long pieces.
    cells = jnp.pad(x, ((1, 1), (1, 1), (0, 0))).reshape(rows + 1, 2, columns + 1, 2, channels)
    cells = cells.transpose(0, 2, 1, 3, 4).reshape(rows + 1, columns + 1, 4 * channels)
    patches = jnp.concatenate([cells[a : a + rows, b : b + columns] for a in range(2) for b in range(2)], axis=-1)
    # Materialize them once: otherwise the compiler recomputes them, transposed, for the kernel's gradient.
    patches = lax.optimization_barrier(patches)
    return halve_groups(patches @ _widen(kernel), bias)


def _widen(kernel: Kernel) -> Array:
    """[cell, pixel of the cell, c] x [output of the window, d]."""
    channels, outputs = kernel.shape[2:]
    shifted = [[jnp.pad(kernel, ((a, 1 - a), (b, 1 - b), (0, 0), (0, 0))) for b in range(2)] for a in range(2)]
    wide = jnp.stack([jnp.stack(row, axis=3) for row in shifted], axis=3)
    wide = wide.reshape(2, 2, 2, 2, channels, 4 * outputs).transpose(0, 2, 1, 3, 4, 5)
    return wide.reshape(16 * channels, 4 * outputs)


@jax.custom_vjp
def halve_groups(y: Float[Array, "p q g"], bias: Float[Array, " d"]) -> Float[Array, "p q d"]:
    """relu(max of the four groups of channels of y + bias). Stores one byte per output for its derivative."""
    return _halve(y, bias)[0]


def _halve(y: Array, bias: Array) -> tuple[Array, Int[Array, "p q d"]]:
    group = jnp.split(y, 4, axis=-1)
    most = jnp.maximum(jnp.maximum(group[0], group[1]), jnp.maximum(group[2], group[3]))
    first = jnp.where(group[0] == most, 0, jnp.where(group[1] == most, 1, jnp.where(group[2] == most, 2, 3)))
    out = most + bias
    which = jnp.where(out > 0, first, 4).astype(jnp.int8)
    # Materialize it: recomputing would read all four groups.
    return lax.optimization_barrier((jnp.maximum(out, 0), which))


def _spread(which: Array, slope: Array) -> tuple[Array, Array]:
    """Route the gradient to the first of equal maxima, and nowhere if ReLU is 0, as the plain form does."""
    group = jnp.arange(4, dtype=jnp.int8)[:, None]
    each = jnp.where(which[..., None, :] == group, slope[..., None, :], 0)
    live = jnp.where(which < 4, slope, 0)
    return each.reshape(*slope.shape[:-1], -1), jnp.sum(live, axis=(0, 1))


halve_groups.defvjp(_halve, _spread)

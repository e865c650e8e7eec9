"""Convolutions as matrix products, in any function that JAX can trace.

A convolution whose kernel differs between clients becomes a grouped one when mapped over clients; inside a loop a CPU
runs even a plain one ten times slower than outside. Both are fast as matrix products: each output is a kernel times the
image patch under it.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.extend as jex
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from performative._engine.memory import bodies
from performative.networks.halving import HALVING, as_product

Rule = Callable[..., Any]


def has_convolutions(function: Callable[..., Any], *args: Any) -> bool:
    """Whether the function has convolutions; args may be shapes."""
    return _mentions(jax.make_jaxpr(function)(*args).jaxpr, {"conv_general_dilated"})


class AsProducts(eqx.Module):
    """`inner` with its convolutions written as matrix products, and its pooling as maxima of slices.

    The values are the same up to rounding. Grouped and transposed convolutions are left as they are, and so are those
    inside `scan`, `while` or `cond`.
    """

    inner: Callable[..., Any]

    def __call__(self, *args: Any) -> Any:
        closed, shapes = jax.make_jaxpr(self.inner, return_shape=True)(*args)
        out = _evaluate(closed.jaxpr, closed.consts, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shapes), out)


def _evaluate(jaxpr: Any, consts: Any, args: list[Any]) -> list[Any]:
    known: dict[Any, Any] = dict(
        zip(itertools.chain(jaxpr.constvars, jaxpr.invars), itertools.chain(consts, args), strict=True)
    )

    def read(var: Any) -> Any:
        return var.val if isinstance(var, jex.core.Literal) else known[var]

    for eqn in jaxpr.eqns:
        values = [read(var) for var in eqn.invars]
        rule = RULES.get(eqn.primitive.name)
        out = None if rule is None else rule(*values, **eqn.params)
        if out is None:  # no rule, or none that applies: unchanged
            inputs = [var for var in eqn.invars if not isinstance(var, jex.core.Literal)]
            alone = jaxpr.replace(constvars=[], invars=inputs, outvars=eqn.outvars, eqns=[eqn], effects=eqn.effects)
            outs = jax.core.eval_jaxpr(alone, [], *map(read, inputs))
        else:
            outs = out if eqn.primitive.multiple_results else [out]
        known.update(zip(eqn.outvars, outs, strict=True))
    return [read(var) for var in jaxpr.outvars]


def _inside(*values: Any, jaxpr: Any, name: str = "", **params: Any) -> Any:
    """A nested jitted function: rewritten if it contains anything to rewrite."""
    # A CPU is limited by the products, of which `as_product` has more, not by memory.
    if name == HALVING and jax.default_backend() != "cpu":
        whole = as_product(*values)
        if whole is not None:
            return [whole]
    if not _mentions(jaxpr.jaxpr, RULES.keys()):
        return None
    return _evaluate(jaxpr.jaxpr, jaxpr.consts, list(values))


def _again(*values: Any, jaxpr: Any, prevent_cse: bool, policy: Any, **params: Any) -> Any:
    """`jax.checkpoint`: what is recomputed stays recomputed."""
    whole = jax.checkpoint(lambda *args: _evaluate(jaxpr, [], list(args)), prevent_cse=prevent_cse, policy=policy)
    return whole(*values)


def _convolve(
    image: Array, kernel: Array, *, window_strides: Any, padding: Any, lhs_dilation: Any, rhs_dilation: Any,
    dimension_numbers: Any, feature_group_count: int, batch_group_count: int, preferred_element_type: Any,
    precision: Any, **params: Any,
) -> Array | None:  # fmt: skip
    """patches [n, places, window * channels] times kernel [window * channels, channels out]."""
    plain = feature_group_count == batch_group_count == 1 and set(lhs_dilation) <= {1} and min(map(min, padding)) >= 0
    if not plain or math.prod(window_strides) == 0:
        return None
    image_spec, kernel_spec, out_spec = dimension_numbers
    # To [n, *space, channels] and [*space, channels, channels out].
    image = jnp.transpose(image, (image_spec[0], *image_spec[2:], image_spec[1]))
    kernel = jnp.transpose(kernel, (*kernel_spec[2:], kernel_spec[1], kernel_spec[0]))
    image = jnp.pad(image, ((0, 0), *padding, (0, 0)))
    window, (channels, out) = kernel.shape[:-2], kernel.shape[-2:]
    space = [
        (size - (side - 1) * dilation - 1) // stride + 1
        for size, side, dilation, stride in zip(image.shape[1:-1], window, rhs_dilation, window_strides, strict=True)
    ]
    patches = []
    for offset in itertools.product(*map(range, window)):
        begin = [o * dilation for o, dilation in zip(offset, rhs_dilation, strict=True)]
        end = [b + (n - 1) * stride + 1 for b, n, stride in zip(begin, space, window_strides, strict=True)]
        patches.append(lax.slice(image, (0, *begin, 0), (image.shape[0], *end, channels), (1, *window_strides, 1)))
    patch = patches[0] if len(patches) == 1 else jnp.concatenate(patches, axis=-1)
    result = lax.dot_general(
        patch, kernel.reshape(-1, out), (((patch.ndim - 1,), (0,)), ((), ())),
        precision=precision, preferred_element_type=preferred_element_type,
    )  # fmt: skip
    # From [n, *space, channels out] to the requested order.
    order = [0] * result.ndim
    for place, axis in enumerate((out_spec[0], *out_spec[2:], out_spec[1])):
        order[axis] = place
    return jnp.transpose(result, order)


def _pool(
    image: Array, *, window_dimensions: Any, window_strides: Any, padding: Any, base_dilation: Any,
    window_dilation: Any, **params: Any,
) -> Array | None:  # fmt: skip
    """The maximum of windows that do not overlap: of their first entries, their second entries, ..., as slices.

    As in pooling, the derivative goes to the first of equal entries, but without a scatter.
    """
    window = tuple(window_dimensions)
    apart = tuple(window_strides) == window and set(base_dilation) | set(window_dilation) <= {1}
    if not apart or any(map(any, padding)) or math.prod(window) > 16:
        return None
    ends = [size // side * side for size, side in zip(image.shape, window, strict=True)]
    # One axis at a time, the last first: of equal entries the first in reading order is taken.
    for axis, side in reversed(list(enumerate(window))):
        if side == 1:
            continue
        parts = [lax.slice_in_dim(image, start, ends[axis], side, axis) for start in range(side)]
        image = parts[0]
        for part in parts[1:]:
            image = lax.select(image >= part, image, part)
    return image


RULES: dict[str, Rule] = {
    "conv_general_dilated": _convolve,
    "reduce_window_max": _pool,
    "jit": _inside,
    "pjit": _inside,
    "checkpoint": _again,
    "remat2": _again,
}


# Operations that contain programs.
_AROUND = {"jit", "pjit", "checkpoint", "remat2"}


def _mentions(jaxpr: Any, names: Any) -> bool:
    """Whether a program, or one inside of it, uses one of these operations."""
    return any(
        (eqn.primitive.name in names and eqn.primitive.name not in _AROUND)
        or any(_mentions(inner, names) for inner in bodies(eqn))
        for eqn in jaxpr.eqns
    )

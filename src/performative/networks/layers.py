"""Layers of our own networks: images are [height, width, channels], which needs no transposition on any device."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from performative.facts import AbstractPart
from performative.networks.halving import convolve_relu_halve


def _uniform(rng: np.random.Generator, shape: tuple[int, ...], inputs: int) -> Array:
    """U(-1/sqrt(inputs), 1/sqrt(inputs)), as in equinox and PyTorch. On the host, so nothing is compiled."""
    reach = 1 / math.sqrt(inputs)
    return jnp.asarray(rng.uniform(-reach, reach, shape), jnp.result_type(float))


class Dense(eqx.Module):
    """x W + b."""

    weight: Float[Array, "a b"]
    bias: Float[Array, " b"]

    def __init__(self, rng: np.random.Generator, inputs: int, outputs: int):
        self.weight = _uniform(rng, (inputs, outputs), inputs)
        self.bias = _uniform(rng, (outputs,), inputs)

    def __call__(self, x: Array, *, key: PRNGKeyArray | None = None) -> Array:
        return x @ self.weight + self.bias


class Convolution(eqx.Module):
    """A square convolution over [height, width, channels], padded so that stride 1 keeps the size."""

    kernel: Float[Array, "side side a b"]
    bias: Float[Array, " b"] | None
    stride: int = eqx.field(static=True)

    def __init__(
        self, rng: np.random.Generator, inputs: int, outputs: int, side: int = 3, stride: int = 1, bias: bool = True
    ):
        self.kernel = _uniform(rng, (side, side, inputs, outputs), inputs * side**2)
        self.bias = _uniform(rng, (outputs,), inputs * side**2) if bias else None
        self.stride = stride

    def __call__(self, x: Array, *, key: PRNGKeyArray | None = None) -> Array:
        reach = self.kernel.shape[0] // 2
        out = lax.conv_general_dilated(
            x[None], self.kernel, (self.stride, self.stride), ((reach, reach), (reach, reach)),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )[0]  # fmt: skip
        return out if self.bias is None else out + self.bias


class HalvingConvolution(eqx.Module):
    """A 3x3 convolution with ReLU, then 2x2 max-pooling."""

    kernel: Float[Array, "3 3 a b"]
    bias: Float[Array, " b"]

    def __init__(self, rng: np.random.Generator, inputs: int, outputs: int):
        self.kernel = _uniform(rng, (3, 3, inputs, outputs), inputs * 9)
        self.bias = _uniform(rng, (outputs,), inputs * 9)

    def __call__(self, x: Array, *, key: PRNGKeyArray | None = None) -> Array:
        return convolve_relu_halve(x, self.kernel, self.bias)


class GroupNorm(AbstractPart):
    """Mean 0 and variance 1 over the image and a group of channels, then scale and shift. Wu and He 2018."""

    references = ("wu2018group",)

    scale: Float[Array, " c"]
    shift: Float[Array, " c"]
    groups: int = eqx.field(static=True)

    def __init__(self, groups: int, channels: int):
        self.scale, self.shift = jnp.ones(channels), jnp.zeros(channels)
        self.groups = groups

    def __call__(self, x: Array, *, key: PRNGKeyArray | None = None) -> Array:
        parted = x.reshape(*x.shape[:-1], self.groups, -1)
        axes = (0, 1, 3)
        centered = parted - jnp.mean(parted, axes, keepdims=True)
        even = centered * lax.rsqrt(jnp.mean(jnp.square(centered), axes, keepdims=True) + 1e-5)
        return even.reshape(x.shape) * self.scale + self.shift


def as_image(x: Array) -> Array:
    """[height, width, channels]: add a channel axis if there is none."""
    return x[..., None] if x.ndim == 2 else x


def halve_inside(x: Array) -> Array:
    """2x2 max-pooling of what an unpadded 5x5 convolution would return: two pixels at each edge are cut."""
    return lax.reduce_window(x[2:-2, 2:-2], -jnp.inf, lax.max, (2, 2, 1), (2, 2, 1), "VALID")


def spatial_mean(x: Array) -> Array:
    """[height, width, channels] -> [channels]."""
    return jnp.mean(x, axis=(0, 1))


RELU = eqx.nn.Lambda(jax.nn.relu)

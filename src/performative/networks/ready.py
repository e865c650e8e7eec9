"""Ready-made networks. Each function returns (theta, network)."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from performative._base.arguments import checked
from performative._base.checks import check_counts
from performative.facts import cites
from performative.networks.layers import RELU, Convolution, Dense, HalvingConvolution, as_image, halve_inside
from performative.networks.split import Network, split
from performative.types import Theta


@checked
def mlp(inputs: int, outputs: int, width: int = 196, depth: int = 1, seed: int = 0) -> tuple[Theta, Network]:
    """A fully connected network, `depth` hidden layers of `width` with ReLU; samples of any shape are flattened.

    The defaults are the network that Jin et al. 2024 use on Fashion-MNIST (784-196-10).
    """
    check_counts(inputs=inputs, outputs=outputs, width=width, depth=depth)
    rng = np.random.default_rng(seed)
    layers: list[Any] = [eqx.nn.Lambda(jnp.ravel)]
    for _ in range(depth):
        layers += [Dense(rng, inputs, width), RELU]
        inputs = width
    return split(eqx.nn.Sequential([*layers, Dense(rng, inputs, outputs)]))


@checked
def cnn(
    shape: Sequence[int], outputs: int, channels: Sequence[int] = (16, 32), width: int = 64, seed: int = 0
) -> tuple[Theta, Network]:
    """3x3 convolutions with ReLU, each followed by 2x2 max-pooling, then one hidden layer of `width`.

    Args:
        shape: of one image, (height, width) or (height, width, channels)
        channels: of the convolutions
    """
    *size, channels_in = image_shape("cnn", shape)
    check_counts(outputs=outputs, width=width)
    rng = np.random.default_rng(seed)
    layers: list[Any] = [eqx.nn.Lambda(as_image)]
    for channels_out in channels:
        check_counts(channels=channels_out)
        if min(size) < 2:
            raise ValueError(
                f"cnn: an image of shape {tuple(shape)} is too small for {len(channels)} poolings; use fewer channels."
            )
        layers.append(HalvingConvolution(rng, channels_in, channels_out))
        channels_in, size = channels_out, [side // 2 for side in size]
    hidden = Dense(rng, channels_in * size[0] * size[1], width)
    layers += [eqx.nn.Lambda(jnp.ravel), hidden, RELU, Dense(rng, width, outputs)]
    return split(eqx.nn.Sequential(layers))


@cites("lecun1998gradient")
@checked
def lenet5(shape: Sequence[int], outputs: int, seed: int = 0) -> tuple[Theta, Network]:
    """LeNet-5 as used today: 5x5 convolutions with 6 and 16 channels, each with 2x2 max-pooling; then 120, 84.

    With images of 32x32x3 and 10 outputs it has 62,006 parameters. Differs from LeCun et al. 1998: ReLU and max-pooling
    instead of tanh and average pooling, and no table of channel connections.
    """
    *size, channels = image_shape("lenet5", shape)
    check_counts(outputs=outputs)
    rng = np.random.default_rng(seed)
    layers: list[Any] = [eqx.nn.Lambda(as_image)]
    for channels_out in (6, 16):
        size = [(side - 4) // 2 for side in size]
        if min(size) < 1:
            raise ValueError(f"lenet5: an image of shape {tuple(shape)} is too small; it needs at least 16x16.")
        layers += [Convolution(rng, channels, channels_out, side=5), RELU, eqx.nn.Lambda(halve_inside)]
        channels = channels_out
    layers.append(eqx.nn.Lambda(jnp.ravel))
    inputs = channels * size[0] * size[1]
    for width in (120, 84):
        layers += [Dense(rng, inputs, width), RELU]
        inputs = width
    return split(eqx.nn.Sequential([*layers, Dense(rng, inputs, outputs)]))


def image_shape(owner: str, shape: Sequence[int]) -> tuple[int, ...]:
    """(height, width, channels)."""
    sizes = tuple(shape)
    whole = all(isinstance(side, int) and not isinstance(side, bool) and side >= 1 for side in sizes)
    if len(sizes) not in (2, 3) or not whole:
        raise ValueError(f"{owner}: shape must be (height, width) or (height, width, channels); got {shape}.")
    if len(sizes) == 3 and sizes[0] <= 4 < sizes[2]:
        raise ValueError(
            f"{owner}: shape {sizes} looks like (channels, height, width); pass (height, width, channels), and images "
            "with the channels last (numpy.moveaxis(x, -3, -1))."
        )
    return sizes if len(sizes) == 3 else (*sizes, 1)

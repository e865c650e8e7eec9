"""A residual network for small images."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from performative._base.arguments import checked
from performative._base.checks import check_counts
from performative.facts import AbstractPart, cites
from performative.networks.layers import RELU, Convolution, Dense, GroupNorm, as_image, spatial_mean
from performative.networks.ready import image_shape
from performative.networks.split import Network, split
from performative.types import Theta


class Block(AbstractPart):
    """relu(norm(conv(relu(norm(conv(x))))) + shortcut(x)); the first convolution has the stride.

    The shortcut is x, or norm(conv(x)) with a 1x1 kernel if size or channels change.
    """

    references = ("he2016deep",)

    first: Convolution
    second: Convolution
    norms: tuple[GroupNorm, GroupNorm]
    shortcut: tuple[Convolution, GroupNorm] | None

    def __init__(self, rng: np.random.Generator, inputs: int, outputs: int, stride: int, groups: int):
        self.first = Convolution(rng, inputs, outputs, stride=stride, bias=False)
        self.second = Convolution(rng, outputs, outputs, bias=False)
        self.norms = (GroupNorm(groups, outputs), GroupNorm(groups, outputs))
        self.shortcut = None
        if stride > 1 or inputs != outputs:
            across = Convolution(rng, inputs, outputs, side=1, stride=stride, bias=False)
            self.shortcut = (across, GroupNorm(groups, outputs))

    def __call__(self, x: Array, *, key: PRNGKeyArray | None = None) -> Array:
        inside = jax.nn.relu(self.norms[0](self.first(x)))
        inside = self.norms[1](self.second(inside))
        if self.shortcut is not None:
            across, norm = self.shortcut
            x = norm(across(x))
        return jax.nn.relu(inside + x)


@cites("he2016deep", "wu2018group")
@checked
def resnet18(shape: Sequence[int], outputs: int, width: int = 64, seed: int = 0) -> tuple[Theta, Network]:
    """ResNet-18 as used on 32x32 images: a 3x3 stem, four stages of two blocks, global average pooling, one layer.

    `width` is the number of channels of the first stage (a multiple of 4; 64 gives 11.2 million parameters). Differs
    from He et al. 2016: GroupNorm (Hsieh et al. 2020) instead of BatchNorm, whose statistics are not part of a model
    that clients average.
    """
    *_, channels = image_shape("resnet18", shape)
    check_counts(outputs=outputs, width=width)
    if width % 4:
        raise ValueError(f"resnet18: width must be a multiple of 4, so norms can group channels; got {width}.")
    rng, groups = np.random.default_rng(seed), min(8, width // 4)
    layers: list[Any] = [
        eqx.nn.Lambda(as_image),
        Convolution(rng, channels, width, bias=False),
        GroupNorm(groups, width),
        RELU,
    ]
    before = width
    for stage in range(4):
        after = width << stage
        for block in range(2):
            layers.append(Block(rng, before, after, 2 if stage and not block else 1, groups))
            before = after
    return split(eqx.nn.Sequential([*layers, eqx.nn.Lambda(spatial_mean), Dense(rng, before, outputs)]))

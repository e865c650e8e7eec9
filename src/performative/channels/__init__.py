"""What is done to an update on its way to the server."""

from performative._deprecated import old_name
from performative.channels.base import AbstractChannel
from performative.channels.clipped_noise import ClippedNoise
from performative.channels.plain import Plain
from performative.channels.quantized import Quantized
from performative.channels.random_k import RandomK
from performative.channels.sparse import Sparse

__all__ = ["AbstractChannel", "ClippedNoise", "Plain", "Quantized", "RandomK", "Sparse"]


def __getattr__(name: str) -> object:
    return old_name(__name__, name)

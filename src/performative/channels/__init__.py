"""What is done to an update on its way to the server."""

from performative.channels.base import AbstractChannel
from performative.channels.clipped_noise import ClippedNoise
from performative.channels.plain import Plain
from performative.channels.quantised import Quantised
from performative.channels.sparse import Sparse

__all__ = ["AbstractChannel", "ClippedNoise", "Plain", "Quantised", "Sparse"]

"""What is done to an update on its way to the server."""

from performative.channels.base import AbstractChannel
from performative.channels.plain import Plain

__all__ = ["AbstractChannel", "Plain"]

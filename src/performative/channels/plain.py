"""The channel that changes nothing."""

from performative.channels.base import AbstractChannel
from performative.types import Memory, Noise, Theta


class Plain(AbstractChannel):
    """The update arrives as it was sent."""

    def send(self, noise: Noise, delta: Theta, memory: Memory) -> tuple[Theta, Memory]:
        return delta, memory

"""The channel that changes nothing."""

from performative.channels.base import AbstractChannel
from performative.types import Broadcast, Memory, Noise, Theta


class Plain(AbstractChannel):
    """The update arrives as it was sent."""

    references = ()
    ignores_data = True
    is_plain = True

    def send(self, noise: Noise, delta: Theta, broadcast: Broadcast, memory: Memory) -> tuple[Theta, Memory]:
        return delta, memory

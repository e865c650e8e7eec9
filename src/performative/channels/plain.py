"""The channel that changes nothing."""

from performative._base.noise import draws_nothing
from performative.channels.base import AbstractChannel
from performative.types import Broadcast, Noise, Theta


class Plain(AbstractChannel[None]):
    """Send the update unchanged."""

    references = ()
    ignores_data = True
    is_plain = True
    quadrature = draws_nothing

    def send(self, noise: Noise, delta: Theta, broadcast: Broadcast, memory: None) -> tuple[Theta, None]:
        return delta, memory

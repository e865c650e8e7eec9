"""The channel slot: what is done to an update on its way?"""

from abc import abstractmethod

import equinox as eqx
from jaxtyping import PRNGKeyArray

from performative.types import Memory, Noise, Theta


class AbstractChannel(eqx.Module):
    """Turns a client's update into what the server receives. The memory lives with the client."""

    def init(self, theta: Theta) -> Memory:
        """The memory of one client at the start; None where nothing is remembered."""
        return None

    def draw(self, key: PRNGKeyArray, theta: Theta) -> Noise:
        """Randomness of one message; None where none is needed, and then it costs nothing."""
        return None

    @abstractmethod
    def send(self, noise: Noise, delta: Theta, memory: Memory) -> tuple[Theta, Memory]:
        """The update as it arrives."""

"""The channel slot: what is done to an update on its way?"""

from abc import abstractmethod
from typing import Generic

from jaxtyping import Array, Float, PRNGKeyArray

from performative.facts import AbstractPart, Bound
from performative.types import Broadcast, Memory, Noise, Theta


class AbstractChannel(AbstractPart, Generic[Memory]):
    """Turns a client's update into what the server receives. The memory lives with the client."""

    @property
    def grid_noise(self) -> bool:
        """Whether what it draws is noise that may come as whole numbers on a grid (`performative._base.noise`)."""
        return False

    def bound(self) -> Bound | None:
        """What bounds one client's update, with the noise on the *sum* of a round's updates; None for none."""
        return None

    def init(self, theta: Theta) -> Memory:
        """The memory of one client at the start; None where nothing is remembered."""
        return None  # type: ignore[return-value]  # Memory is None where nothing is remembered

    def draw(self, key: PRNGKeyArray, theta: Theta) -> Noise:
        """Randomness of one message; None where none is needed, and then it costs nothing."""
        return None

    def quadrature(self, theta: Theta) -> tuple[Noise, Float[Array, " n"]] | None:
        """What `draw` gives as a rule: nodes with a leading axis n, and weights. None where none is known.

        Sums over it are the expectations of functions that are quadratic in what is drawn.
        """
        return None

    @abstractmethod
    def send(self, noise: Noise, delta: Theta, broadcast: Broadcast, memory: Memory) -> tuple[Theta, Memory]:
        """The update as it arrives."""

    def totals(self, delta: Theta) -> dict[str, Array]:
        """What is counted of this message beside; the round adds it up."""
        return {}

"""The channel slot: what happens to an update on its way."""

from abc import abstractmethod
from typing import Generic

from jaxtyping import Array, Float, PRNGKeyArray

from performative.facts import AbstractPart, Bound
from performative.types import Broadcast, Memory, Noise, Theta


class AbstractChannel(AbstractPart, Generic[Memory]):
    """Turns a client's update into what the server receives. The client keeps the memory."""

    @property
    def grid_noise(self) -> bool:
        """Whether it draws noise that may be integers on a grid (`performative._base.noise`)."""
        return False

    def bound(self) -> Bound | None:
        """The bound on one client's update, with the noise on the *sum* of a round's updates; None if there is none."""
        return None

    def init(self, theta: Theta) -> Memory:
        """The memory of one client at the start; None if nothing is remembered."""
        return None  # type: ignore[return-value]  # Memory is None if nothing is remembered

    def draw(self, key: PRNGKeyArray, theta: Theta) -> Noise:
        """Randomness of one message; None if none is needed, which costs nothing."""
        return None

    def quadrature(self, theta: Theta) -> tuple[Noise, Float[Array, " n"]] | None:
        """A quadrature rule for `draw`: nodes with a leading axis n, and weights. None if unknown.

        It is exact for expectations of functions that are quadratic in the draws.
        """
        return None

    @abstractmethod
    def send(self, noise: Noise, delta: Theta, broadcast: Broadcast, memory: Memory) -> tuple[Theta, Memory]:
        """The update as the server receives it."""

    def totals(self, delta: Theta) -> dict[str, Array]:
        """Further counts for this message; the round sums them."""
        return {}

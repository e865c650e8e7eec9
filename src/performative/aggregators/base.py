"""The aggregator slot: how updates become a server move."""

from abc import abstractmethod
from typing import ClassVar, Generic

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, PyTree

from performative.facts import AbstractPart
from performative.participation.base import AbstractParticipation
from performative.types import Cohort, Memory, Theta, Upload


class AbstractAggregator(AbstractPart, Generic[Memory]):
    """Turns the uploads of a cohort into a move of the global model. The server keeps the memory."""

    uses_sums_only: ClassVar[bool] = False
    """Whether only the updates' sum with the cohort's weights is used, so a server need not see individual ones."""

    def needs_sums_only(self) -> bool:
        """Whether `sum_weights` and `aggregate_sum` do what `aggregate` does: secure aggregation is possible then."""
        return False

    evens_work: ClassVar[bool] = False
    """Whether clients are weighted by gradients, regardless of their number of local steps."""

    def init(self, theta: Theta, clients: int, extra: dict[str, PyTree]) -> Memory:
        """The server's memory at the start; None if nothing is remembered.

        `extra` contains the shapes of what each client adds to its upload.
        """
        return None  # type: ignore[return-value]  # Memory is None if nothing is remembered

    def broadcast(self, memory: Memory) -> dict[str, PyTree]:
        """What clients receive in addition to the model, by name."""
        return {}

    @abstractmethod
    def aggregate(
        self, theta: Theta, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: Memory
    ) -> tuple[Theta, Memory]:
        """The move, from uploads with a leading axis of K rows. Inactive rows have weight 0 and may contain anything.

        Uploads come without counts and losses (`Upload.to_aggregate`): no noise protects these.
        """

    def sum_weights(
        self, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: Memory
    ) -> Float[Array, " K"]:
        """c_k such that only sum_k c_k delta_k is needed of the updates; those in `upload` are not read.

        If clients drop out of the cohort, the weights of the others change by a common factor.
        """
        # Not abstract: most robust rules have no such form, and secure aggregation refuses them by name beforehand.
        raise NotImplementedError(f"{type(self).__name__} needs individual updates.")

    def aggregate_sum(
        self, theta: Theta, total: Theta, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: Memory
    ) -> tuple[Theta, Memory]:
        """`aggregate` from total = sum_k c_k delta_k, with c = `sum_weights` of the same arguments."""
        # As above.
        raise NotImplementedError(f"{type(self).__name__} needs individual updates.")

    def levels(self, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: Memory) -> dict[str, Array]:
        """Numbers of this round to record, by name; `memory` is that before the round."""
        return {}

    def check(self, weights: np.ndarray, participation: AbstractParticipation) -> None:
        """Raise if this rule does not work here; called once, before a run."""

    def review(self, memory: Memory, clients: PyTree, weights: Array | np.ndarray) -> list[str]:
        """Notes on the final memories of the server and of the clients' estimators after a run of R repeats.

        Leaves have a leading axis of repeats; those of `clients` have an axis of clients after it.
        """
        return []


class AbstractWrapper(AbstractAggregator[Memory]):
    """A wrapper around another aggregator, `inner`, to which it delegates by default."""

    inner: eqx.AbstractVar[AbstractAggregator]

    def __check_init__(self) -> None:
        if not isinstance(self.inner, AbstractAggregator):
            raise ValueError(f"{type(self).__name__}: inner must be an aggregator such as Mean(); got {self.inner!r}.")

    def inside(self, memory: Memory) -> PyTree:
        """`inner`'s part of the memory."""
        return memory.inner  # type: ignore[attr-defined]  # most store it under this name

    def broadcast(self, memory: Memory) -> dict[str, PyTree]:
        return self.inner.broadcast(self.inside(memory))

    def levels(self, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: Memory) -> dict[str, Array]:
        return self.inner.levels(upload, cohort, weights, self.inside(memory))

    def check(self, weights: np.ndarray, participation: AbstractParticipation) -> None:
        self.inner.check(weights, participation)

    def review(self, memory: Memory, clients: PyTree, weights: Array | np.ndarray) -> list[str]:
        return self.inner.review(self.inside(memory), clients, weights)

"""The aggregator slot: how do updates become a server move?"""

from abc import abstractmethod
from typing import ClassVar, Generic

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, PyTree

from performative.facts import AbstractPart
from performative.participation.base import AbstractParticipation
from performative.types import Cohort, Memory, Theta, Upload


class AbstractAggregator(AbstractPart, Generic[Memory]):
    """Turns the uploads of a cohort into a move of the global model. The memory lives with the server."""

    uses_sums_only: ClassVar[bool] = False
    """Whether updates enter by their sum with the cohort's weights alone, so that a server need not see single ones."""

    def needs_sums_only(self) -> bool:
        """Whether `sum_weights` and `aggregate_sum` do what `aggregate` does: secure aggregation is possible then."""
        return False

    evens_work: ClassVar[bool] = False
    """Whether clients count by their gradients, however many local steps they took."""

    def init(self, theta: Theta, clients: int, extra: dict[str, PyTree]) -> Memory:
        """The server's memory at the start; None where nothing is remembered.

        `extra` holds the shapes of what each client will add to its upload.
        """
        return None  # type: ignore[return-value]  # Memory is None where nothing is remembered

    def broadcast(self, memory: Memory) -> dict[str, PyTree]:
        """What clients receive beside the model, by name."""
        return {}

    @abstractmethod
    def aggregate(
        self, theta: Theta, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: Memory
    ) -> tuple[Theta, Memory]:
        """The move, from uploads with a leading axis of K rows. Inactive rows weigh 0 and may hold anything.

        Uploads come without counts and losses (`Upload.to_aggregate`): no noise covers these.
        """

    def sum_weights(
        self, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: Memory
    ) -> Float[Array, " K"]:
        """c_k such that sum_k c_k delta_k is all that is needed of the updates; those in `upload` are not looked at.

        Where clients are left out of the cohort, those of the others change by one common factor.
        """
        raise NotImplementedError(f"{type(self).__name__} needs single updates.")

    def aggregate_sum(
        self, theta: Theta, total: Theta, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: Memory
    ) -> tuple[Theta, Memory]:
        """`aggregate` from total = sum_k c_k delta_k, with c = `sum_weights` of the same arguments."""
        raise NotImplementedError(f"{type(self).__name__} needs single updates.")

    def levels(self, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: Memory) -> dict[str, Array]:
        """Numbers of this round that are worth a record, by name; `memory` is that of before the round."""
        return {}

    def check(self, weights: np.ndarray, participation: AbstractParticipation) -> None:
        """Refuse what this rule cannot serve; called once, before a run."""

    def review(self, memory: Memory, clients: PyTree, weights: Array | np.ndarray) -> list[str]:
        """What the server's memory and that of the clients' estimators give reason to say after a run of R repeats.

        Leaves lead with an axis of repeats; those of `clients` have an axis of clients after it.
        """
        return []


class AbstractWrapper(AbstractAggregator[Memory]):
    """Around another aggregator, `inner`: what it does not say itself is said by that one."""

    inner: eqx.AbstractVar[AbstractAggregator]

    def __check_init__(self) -> None:
        if not isinstance(self.inner, AbstractAggregator):
            raise ValueError(f"{type(self).__name__}: inner must be an aggregator such as Mean(); got {self.inner!r}.")

    def inside(self, memory: Memory) -> PyTree:
        """`inner`'s part of the memory."""
        return memory.inner  # type: ignore[attr-defined]  # most keep it under this name

    def broadcast(self, memory: Memory) -> dict[str, PyTree]:
        return self.inner.broadcast(self.inside(memory))

    def levels(self, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: Memory) -> dict[str, Array]:
        return self.inner.levels(upload, cohort, weights, self.inside(memory))

    def check(self, weights: np.ndarray, participation: AbstractParticipation) -> None:
        self.inner.check(weights, participation)

    def review(self, memory: Memory, clients: PyTree, weights: Array | np.ndarray) -> list[str]:
        return self.inner.review(self.inside(memory), clients, weights)

"""Stragglers: the server takes the first K that answer."""

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from performative._base.sampling import first_of, ways
from performative.facts import declared
from performative.participation.base import AbstractParticipation, Selection, check_draws
from performative.participation.latency import AbstractLatency
from performative.participation.law import CohortMoments, Cohorts, certain_steps, first_to_come
from performative.participation.schemes import Full, SchemeTwo
from performative.types import Cohort, as_whole

# Largest K for which probabilities of unequal clients are computed: 2^K terms each.
_LARGEST = 16


class FirstK(AbstractParticipation[None]):
    """The first K of all N clients to answer; the server waits for the K-th.

        a_i = p_i N / K   for the first K

    If all latencies have the same distribution this is Scheme II. If they differ, fast clients contribute more often
    than their weight implies, which shifts the fixed point of training towards them. Costs O(N) per round: all are
    asked.
    """

    references = ()
    ignores_data = True
    sums_to_one = False

    k: int = eqx.field(static=True, converter=as_whole)
    latency: AbstractLatency

    def __check_init__(self) -> None:
        check_draws("FirstK", self.k)
        if not isinstance(self.latency, AbstractLatency):
            raise ValueError(
                "FirstK: latency must be a distribution such as pf.participation.Exponential(mean); "
                f"got {self.latency!r}."
            )

    @property
    def first_k(self) -> int:
        return self.k

    def invited(self) -> AbstractParticipation:
        return Full()

    def check(self, weights: np.ndarray) -> None:
        check_draws("FirstK", self.k, len(weights))
        self.latency.check("FirstK", len(weights))

    def size(self, clients: int) -> int:
        return self.k

    def _alike(self) -> SchemeTwo | None:
        """The equivalent scheme if all clients are equally fast; None if they are not."""
        return SchemeTwo(self.k) if declared(self.latency, "exchangeable") else None

    def _rates(self, clients: int) -> np.ndarray | None:
        """Arrival rate of each client, if waiting is memoryless and K is small enough for sums over all its subsets."""
        return declared(self.latency, "arrival_rates", clients) if self.k <= _LARGEST else None

    def cohort_moments(self, weights: np.ndarray, round: int) -> CohortMoments | None:
        alike = self._alike()
        return self.enumerated_moments(weights, round) if alike is None else alike.cohort_moments(weights, round)

    def cohorts(self, weights: np.ndarray, round: int) -> Cohorts | None:
        alike, rates = self._alike(), self._rates(len(weights))
        if alike is not None or rates is None:
            return None if alike is None else alike.cohorts(weights, round)
        return first_to_come(rates, self.k, np.asarray(weights, np.float64) * (len(weights) / self.k))

    def cohort_count(self, weights: np.ndarray, round: int) -> float | None:
        if self._alike() is None and self._rates(len(weights)) is None:
            return None
        return ways(len(weights), self.k)

    def repeats_after(self, clients: int) -> int:
        return 1

    def step_law(self, clients: int, default: int) -> np.ndarray:
        return certain_steps(clients, default)

    def select(self, key: PRNGKeyArray, selection: Selection, memory: None) -> tuple[Cohort, None]:
        clients = selection.weights.shape[0]
        key_time, key_ties = jax.random.split(key)
        first, ids = first_of(key_ties, self.latency.draw(key_time, clients), self.k)
        return Cohort(ids, self.first_weights(selection.weights, ids, self.k), elapsed=first[-1]), memory

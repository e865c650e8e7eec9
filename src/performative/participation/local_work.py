"""Clients that do different numbers of local steps."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from performative.draws import Law
from performative.facts import declared
from performative.participation.base import AbstractParticipation, Selection
from performative.participation.law import CohortMoments, Cohorts
from performative.participation.step_rules import AbstractSteps, as_steps
from performative.types import ArrayLike, Cohort, Memory, Upload


def _inner(fact: str) -> Any:
    """Forward a property of `inner`."""
    return property(lambda work: getattr(work.inner, fact))


class LocalWork(AbstractParticipation[tuple[Memory, PyTree]]):
    """The cohort of `inner`, where client i does tau_i local steps.

    `steps` is a list tau_i (one per client), `UniformSteps(lo, hi)`, or `AdaComm(first)`, one tau for all that adapts
    to the loss. It sets E, the largest tau_i, so leave the recipe's `local_steps` at its default. The clock still
    counts t = round * E + e.
    """

    references = ()
    ignores_data = True

    inner: AbstractParticipation[Memory]
    steps: AbstractSteps
    longest: int = eqx.field(static=True)

    is_full, measures_losses, first_k = _inner("is_full"), _inner("measures_losses"), _inner("first_k")
    keeps_time = _inner("keeps_time")
    sums_to_one, sums_to_one_if_equal = _inner("sums_to_one"), _inner("sums_to_one_if_equal")

    def __init__(self, inner: AbstractParticipation[Memory], steps: AbstractSteps | ArrayLike):
        if not isinstance(inner, AbstractParticipation):
            raise ValueError(f"LocalWork: inner must be a participation such as pf.Full(); got {inner!r}.")
        if isinstance(inner, LocalWork):
            raise ValueError("LocalWork inside LocalWork: the inner steps would be ignored; pass one list of steps.")
        self.inner = inner
        self.steps = as_steps(steps)
        self.longest = self.steps.longest

    def size(self, clients: int) -> int:
        return self.inner.size(clients)

    def sampling(self, clients: int) -> Law | None:
        return declared(self.inner, "sampling", clients)

    def cohort_moments(self, weights: np.ndarray, round: int) -> CohortMoments | None:
        return declared(self.inner, "cohort_moments", weights, round)

    def cohorts(self, weights: np.ndarray, round: int) -> Cohorts | None:
        return declared(self.inner, "cohorts", weights, round)

    def cohort_count(self, weights: np.ndarray, round: int) -> float | None:
        return declared(self.inner, "cohort_count", weights, round)

    def repeats_after(self, clients: int) -> int | None:
        return declared(self.inner, "repeats_after", clients)

    def step_law(self, clients: int, default: int) -> np.ndarray | None:
        return declared(self.steps, "law", clients)

    def oldest(self, clients: int) -> int:
        return self.inner.oldest(clients)

    def without_work(self) -> AbstractParticipation:
        return self.inner

    def steps_of(self, clients: int, default: int) -> np.ndarray | None:
        return self.steps.listed()

    def local_steps(self, default: int) -> int:
        if default not in (1, self.longest):
            raise ValueError(
                f"local_steps={default} contradicts LocalWork, whose largest tau_i is {self.longest}; "
                "leave local_steps out."
            )
        return self.longest

    def invited(self) -> AbstractParticipation:
        return LocalWork(self.inner.invited(), self.steps)

    def first_weights(self, weights: Float[Array, " N"], ids: Int[Array, " K"], came: int) -> Float[Array, " K"]:
        return self.inner.first_weights(weights, ids, came)

    @property
    def requires_loss(self) -> bool:
        return self.inner.requires_loss or self.steps.requires_loss

    def tables(self, weights: np.ndarray) -> PyTree:
        return self.inner.tables(weights)

    def init(self, clients: int) -> tuple[Memory, PyTree]:
        return self.inner.init(clients), self.steps.init()

    def begin(self, key: PRNGKeyArray, selection: Selection, memory: tuple[Memory, PyTree]) -> tuple[Memory, PyTree]:
        return self.inner.begin(key, selection, memory[0]), memory[1]

    def remembered(self, memory: tuple[Memory, PyTree]) -> dict[str, Float[Array, " N"]]:
        return self.inner.remembered(memory[0])

    def check(self, weights: np.ndarray) -> None:
        self.inner.check(weights)
        listed = self.steps.listed()
        if listed is None and self.inner.keeps_time:
            raise ValueError(
                f"LocalWork around {type(self.inner).__name__}: how long a client trains must be known when it "
                "starts; give steps as a list, one per client."
            )
        if listed is not None and len(listed) != len(weights):
            raise ValueError(
                f"LocalWork: steps has {len(listed)} entries for {len(weights)} clients; pass one per client."
            )

    def select(
        self, key: PRNGKeyArray, selection: Selection, memory: tuple[Memory, PyTree]
    ) -> tuple[Cohort, tuple[Memory, PyTree]]:
        key_inner, key_steps = jax.random.split(key)
        cohort, inside = self.inner.select(key_inner, selection, memory[0])
        steps, memory = self.steps.draw(key_steps, cohort.ids, memory[1]), (inside, memory[1])
        return eqx.tree_at(lambda c: c.steps, cohort, steps, is_leaf=lambda leaf: leaf is None), memory

    def observe(self, cohort: Cohort, upload: Upload, memory: tuple[Memory, PyTree]) -> tuple[Memory, PyTree]:
        return self.inner.observe(cohort, upload, memory[0]), self.steps.observe(cohort, upload, memory[1])

"""Draws with replacement with custom probabilities, corrected by the weights."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from performative._base.checks import check_finite, check_one_a_client
from performative._base.sampling import alias_table, draw_alias, merge_duplicates, ways
from performative.participation.base import AbstractParticipation, Selection, check_draws
from performative.participation.law import CohortMoments, Cohorts, certain_steps, multinomial_moments, multisets
from performative.types import Cohort, Numbers, is_concrete, number, whole


class Weighted(AbstractParticipation[None]):
    """Draw K clients with replacement with probabilities q_i, proportional to `chance`, and weight them without bias.

        a_i = #{k : i_k = i} p_i / (K q_i),      i_k ~ Categorical(q)

    Unbiased whatever q is: E[a_i] = p_i. With q = p it is `SchemeOne`. The weights of a round do not sum to one, which
    is harmless when averaging updates, fatal when averaging models (see `Mean`). A client drawn twice trains once and
    counts twice. The contribution of q to a round's variance is

        sum_i p_i^2 E|delta_i|^2 / (K q_i),      minimal for q_i ~ p_i (E|delta_i|^2)^(1/2)

    with delta_i the update of client i; `pf.tune` finds the best q for a whole run, or asymptotically. Sampling by the
    norms of updates: Chen, Horvath and Richtarik 2022.
    """

    references = ("chen2022optimal",)
    ignores_data = True
    sums_to_one = False
    sums_to_one_if_equal = False

    k: int = whole()
    chance: Numbers = number()

    def __check_init__(self) -> None:
        check_draws("Weighted", self.k)
        check_finite("Weighted", chance=self.chance)
        chance = np.asarray(self.chance) if is_concrete(self.chance) else np.ones(1)
        if chance.ndim != 1 or np.any(chance < 0) or not np.any(chance > 0):
            raise ValueError(f"Weighted: chance must contain one number >= 0 for each client; got {self.chance}.")

    def check(self, weights: np.ndarray) -> None:
        check_one_a_client("Weighted: ", len(weights), chance=self.chance)
        if is_concrete(self.chance) and np.any((np.asarray(self.chance) == 0) & (weights > 0)):
            raise ValueError("Weighted: a client with chance 0 never takes part; give each a chance > 0.")

    def size(self, clients: int) -> int:
        return self.k

    def tables(self, weights: np.ndarray) -> PyTree:
        return alias_table(np.asarray(self.chance))

    def cohort_moments(self, weights: np.ndarray, round: int) -> CohortMoments:
        q = self._shares()
        return multinomial_moments(q, self.k, _over(weights, q))

    def cohorts(self, weights: np.ndarray, round: int) -> Cohorts:
        q = np.asarray(self._shares())
        scale = _over(weights, q)
        for chance, ids, weight in multisets(q, self.k):
            yield chance, ids, weight * scale[ids]

    def cohort_count(self, weights: np.ndarray, round: int) -> float:
        return ways(int(np.sum(np.asarray(self.chance) > 0)) + self.k - 1, self.k)

    def repeats_after(self, clients: int) -> int:
        return 1

    def step_law(self, clients: int, default: int) -> np.ndarray:
        return certain_steps(clients, default)

    def select(self, key: PRNGKeyArray, selection: Selection, memory: None) -> tuple[Cohort, None]:
        weights = selection.weights
        ids, times = merge_duplicates(draw_alias(key, selection.tables, self.k), spare=weights.shape[0])
        q = jnp.asarray(self._shares()).astype(weights.dtype)
        scale = weights / jnp.where(weights > 0, q, 1)
        weight = times.astype(weights.dtype) / self.k * jnp.take(scale, ids, mode="clip")
        return Cohort(ids, weight, active=times > 0), memory

    def _shares(self) -> Float[np.ndarray | Array, " N"]:
        """q."""
        return self.chance / self.chance.sum()


def _over(weights: np.ndarray, q: Float[np.ndarray | Array, " N"]) -> Float[np.ndarray | Array, " N"]:
    """p_i / q_i, whatever p sums to; 0 for clients of zero weight."""
    p = np.asarray(weights, np.float64)
    return p / p.sum() / (q + (p == 0).astype(np.float64))

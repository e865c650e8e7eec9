"""Full participation and the two sampling schemes of P-FedAvg."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from performative._base.sampling import alias_table, distinct, draw_alias, merge_duplicates, ways
from performative.draws import Everyone, WithoutReplacement
from performative.participation.base import AbstractParticipation, Selection, check_draws
from performative.participation.law import (
    CohortMoments,
    Cohorts,
    certain_steps,
    multinomial_moments,
    multisets,
    scaled_moments,
    subset_pairs,
    subsets,
)
from performative.theory.gaussian import WeightMoments, weight_moments
from performative.types import Cohort, whole


class Full(AbstractParticipation[None]):
    """All clients take part in every round: a_i = p_i."""

    references = ()
    ignores_data = True
    is_full = True

    def weight_moments(self, weights: np.ndarray) -> WeightMoments:
        return weight_moments(weights, "full", None)

    def size(self, clients: int) -> int:
        return clients

    def sampling(self, clients: int) -> Everyone:
        return Everyone()

    def cohort_moments(self, weights: np.ndarray, round: int) -> CohortMoments:
        return scaled_moments(subset_pairs(len(weights), len(weights)), np.asarray(weights, np.float64))

    def cohorts(self, weights: np.ndarray, round: int) -> Cohorts:
        return subsets(range(len(weights)), len(weights), np.asarray(weights, np.float64))

    def cohort_count(self, weights: np.ndarray, round: int) -> float:
        return 1.0

    def repeats_after(self, clients: int) -> int:
        return 1

    def step_law(self, clients: int, default: int) -> np.ndarray:
        return certain_steps(clients, default)

    def select(self, key: PRNGKeyArray, selection: Selection, memory: None) -> tuple[Cohort, None]:
        weights = selection.weights
        return Cohort(jnp.arange(weights.shape[0], dtype=jnp.int32), weights), memory


class SchemeOne(AbstractParticipation[None]):
    """Draw K clients with replacement, in proportion to their weights.

        a_i = #{k : i_k = i} / K,      i_k ~ Categorical(p)

    Unbiased: E[a_i] = p_i. A client drawn twice trains once and counts twice.
    Jin et al. 2024, Section 2.4, Scheme I; bound in Theorem 3.2.
    """

    references = ("li2020convergence", "jin2024performative")
    ignores_data = True

    k: int = whole()

    def __check_init__(self) -> None:
        check_draws("SchemeOne", self.k)

    def weight_moments(self, weights: np.ndarray) -> WeightMoments:
        return weight_moments(weights, "one", self.k)

    def size(self, clients: int) -> int:
        return self.k

    def tables(self, weights: np.ndarray) -> PyTree:
        return None if np.ptp(weights) == 0 else alias_table(weights)

    def cohort_moments(self, weights: np.ndarray, round: int) -> CohortMoments:
        return multinomial_moments(_shares(weights), self.k)

    def cohorts(self, weights: np.ndarray, round: int) -> Cohorts:
        return multisets(_shares(weights), self.k)

    def cohort_count(self, weights: np.ndarray, round: int) -> float:
        return ways(int(np.sum(np.asarray(weights) > 0)) + self.k - 1, self.k)

    def repeats_after(self, clients: int) -> int:
        return 1

    def step_law(self, clients: int, default: int) -> np.ndarray:
        return certain_steps(clients, default)

    def select(self, key: PRNGKeyArray, selection: Selection, memory: None) -> tuple[Cohort, None]:
        clients = selection.weights.shape[0]
        if selection.tables is None:
            drawn = jax.random.randint(key, (self.k,), 0, clients, jnp.int32)
        else:
            drawn = draw_alias(key, selection.tables, self.k)
        ids, times = merge_duplicates(drawn, spare=clients)
        weight = times.astype(selection.weights.dtype) / self.k
        return Cohort(ids.astype(jnp.int32), weight, active=times > 0), memory


class SchemeTwo(AbstractParticipation[None]):
    """Draw K distinct clients, every set equally likely.

        a_i = p_i N / K   for the K drawn

    Unbiased: E[a_i] = p_i. With unequal p the weights of a round do not sum to one, which is harmless when averaging
    updates, fatal when averaging models (see `Mean`). Jin et al. 2024, Section 2.4, Scheme II; bound in Theorem 3.3.
    """

    references = ("li2020convergence", "jin2024performative")
    ignores_data = True
    sums_to_one = False

    k: int = whole()

    def __check_init__(self) -> None:
        check_draws("SchemeTwo", self.k)

    def check(self, weights: np.ndarray) -> None:
        check_draws("SchemeTwo", self.k, len(weights))

    def weight_moments(self, weights: np.ndarray) -> WeightMoments:
        return weight_moments(weights, "two", self.k)

    def size(self, clients: int) -> int:
        return self.k

    def sampling(self, clients: int) -> WithoutReplacement:
        return WithoutReplacement(min(self.k, clients), clients)

    def cohort_moments(self, weights: np.ndarray, round: int) -> CohortMoments:
        self.check(weights)
        return scaled_moments(subset_pairs(len(weights), self.k), self._scale(weights))

    def cohorts(self, weights: np.ndarray, round: int) -> Cohorts:
        self.check(weights)
        return subsets(range(len(weights)), self.k, self._scale(weights))

    def cohort_count(self, weights: np.ndarray, round: int) -> float:
        return ways(len(weights), self.k)

    def _scale(self, weights: np.ndarray) -> np.ndarray:
        """a_i of the drawn clients."""
        return np.asarray(weights, np.float64) * (len(weights) / self.k)

    def repeats_after(self, clients: int) -> int:
        return 1

    def step_law(self, clients: int, default: int) -> np.ndarray:
        return certain_steps(clients, default)

    def select(self, key: PRNGKeyArray, selection: Selection, memory: None) -> tuple[Cohort, None]:
        clients = selection.weights.shape[0]
        ids = distinct(key, self.k, clients).astype(jnp.int32)
        return Cohort(ids, selection.weights[ids] * (clients / self.k)), memory


def _shares(weights: np.ndarray) -> np.ndarray:
    """The probabilities that `alias_table` uses."""
    p = np.asarray(weights, np.float64)
    return p / p.sum()

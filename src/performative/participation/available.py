"""Clients that are available at some times and not at others."""

import math
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from performative._base.checks import check_finite, check_one_a_client, is_one_of
from performative._base.sampling import first_of
from performative.facts import AbstractPart, declared
from performative.participation.available_law import all_cohorts, count_cohorts, unbiased_moments
from performative.participation.base import AbstractParticipation, Selection, check_draws
from performative.participation.law import CohortMoments, Cohorts, certain_steps
from performative.types import ArrayLike, Cohort, Numbers, as_numbers, as_whole, is_concrete, number


class AbstractAvailability(AbstractPart):
    """Probability that a client is available, by round. Parameters are scalars, or have one entry per client."""

    @abstractmethod
    def at(self, round: Int[Array, ""]) -> Float[Array, "..."]:
        """q_i of this round: a number, or one per client."""

    def repeats_after(self) -> int | None:
        """After how many rounds the pattern repeats; None if unknown."""
        return None


class DayNight(AbstractAvailability):
    """Availability `high` by day, `low` by night.

        q_i(r) = high_i  where (r + phase_i) mod period < period / 2,  else low_i

    A `phase` per client models time zones.
    """

    references = ()
    ignores_data = True

    period: Numbers = number()
    phase: Numbers = number(default=0.0)
    high: Numbers = number(default=1.0)
    low: Numbers = number(default=0.0)

    def __check_init__(self) -> None:
        check_finite("DayNight", period=self.period, phase=self.phase)
        if is_concrete(self.period) and not np.all(np.asarray(self.period) > 0):
            raise ValueError(f"DayNight: period must be a number of rounds > 0; got {self.period}.")
        _check_chance("DayNight", high=self.high, low=self.low)

    def at(self, round: Int[Array, ""]) -> Float[Array, "..."]:
        # In two parts: float32 cannot represent odd rounds beyond 2^24.
        dtype = jnp.result_type(float)
        long, short = (round // 4096 * 4096).astype(dtype), (round % 4096).astype(dtype)
        hour = jnp.mod(jnp.mod(long, self.period) + short + self.phase, self.period)
        return jnp.where(hour < self.period / 2, self.high, self.low)

    def repeats_after(self) -> int | None:
        if not is_concrete(self.period):
            return None
        periods = np.unique(np.asarray(self.period))
        # Non-integer periods such as 2.5 rounds are excluded: rounding may put a round on either side.
        return math.lcm(*map(int, periods)) if np.all(periods % 1 == 0) else None


def _check_chance(owner: str, **chances: Numbers) -> None:
    for name, chance in chances.items():
        check_finite(owner, **{name: chance})
        if is_concrete(chance) and not np.all((np.asarray(chance) >= 0) & (np.asarray(chance) <= 1)):
            raise ValueError(f"{owner}: {name} is a probability and must lie in 0..1; got {chance}.")


def _read_chance(probability: AbstractAvailability | ArrayLike) -> Any:
    return probability if isinstance(probability, AbstractAvailability) else as_numbers(probability)


class Available(AbstractParticipation[None]):
    """The available clients: client i with probability q_i, drawn independently for each round and client.

        weigh="unbiased"       a_i = p_i / q_i               for those present
        weigh="renormalized"   a_i = p_i / sum of their p    for those present (what FedAvg does)

    The first is unbiased (E[a_i] = p_i) in rounds with q_i > 0; when q_i = 0 (`DayNight` with low=0) a client does not
    contribute and nothing compensates for it. The second favors clients that are often available, and those available
    when few others are. In a round with no clients the model does not change.

    Args:
        probability: a number, one per client, or a pattern such as DayNight(period, phase, high, low)
        k: at most this many of those present, every set equally likely; the unbiased weights then grow by present / k.
            None takes all

    Costs O(N) per round: availability is drawn for everyone, and without k the cohort has one row per client.
    """

    references = ()
    ignores_data = True
    sums_to_one_if_equal = False
    sums_to_one = False

    probability: Any = eqx.field(converter=_read_chance)
    k: int | None = eqx.field(static=True, converter=as_whole, default=None)
    weigh: str = eqx.field(static=True, default="unbiased")

    def __check_init__(self) -> None:
        if self.k is not None:
            check_draws("Available", self.k)
        if not is_one_of(self.weigh, "unbiased", "renormalized"):
            raise ValueError(f'Available: weigh must be "unbiased" or "renormalized"; got {self.weigh!r}.')
        if not isinstance(self.probability, AbstractAvailability):
            _check_chance("Available", probability=self.probability)
            if is_concrete(self.probability) and np.any(np.asarray(self.probability) == 0):
                raise ValueError("Available: probability must be above 0; leave out clients that are never available.")

    def size(self, clients: int) -> int:
        return clients if self.k is None else self.k

    def check(self, weights: np.ndarray) -> None:
        if self.k is not None:
            check_draws("Available", self.k, len(weights))
        for leaf in jax.tree.leaves(self.probability):
            check_one_a_client("Available: ", len(weights), probability=leaf)

    def cohort_moments(self, weights: np.ndarray, round: int) -> CohortMoments | None:
        q = self._chances(weights, round)
        if q is None or self.weigh != "unbiased":
            return self.enumerated_moments(weights, round)
        return unbiased_moments(np.asarray(weights, np.float64), q, self.k)

    def cohorts(self, weights: np.ndarray, round: int) -> Cohorts | None:
        q = self._chances(weights, round)
        p = np.asarray(weights, np.float64)
        return None if q is None else all_cohorts(p, q, self.k, self.weigh == "unbiased")

    def cohort_count(self, weights: np.ndarray, round: int) -> float | None:
        q = self._chances(weights, round)
        return None if q is None else count_cohorts(q, self.k, self.weigh == "unbiased")

    def _chances(self, weights: np.ndarray, round: int) -> np.ndarray | None:
        """q_i of that round, [N]; None if traced."""
        if not is_concrete(self.probability):
            return None
        self.check(weights)
        pattern = self.probability
        with jax.enable_x64(True):
            q = pattern.at(jnp.asarray(round, jnp.int32)) if isinstance(pattern, AbstractAvailability) else pattern
        return np.broadcast_to(np.asarray(q, np.float64), (len(weights),))

    def repeats_after(self, clients: int) -> int | None:
        pattern = self.probability
        return declared(pattern, "repeats_after") if isinstance(pattern, AbstractAvailability) else 1

    def step_law(self, clients: int, default: int) -> np.ndarray:
        return certain_steps(clients, default)

    def select(self, key: PRNGKeyArray, selection: Selection, memory: None) -> tuple[Cohort, None]:
        p, clients = selection.weights, selection.weights.shape[0]
        pattern = self.probability
        q = pattern.at(selection.round) if isinstance(pattern, AbstractAvailability) else jnp.asarray(pattern)
        q = jnp.broadcast_to(q, (clients,)).astype(p.dtype)
        # Keyed by client, so availability does not depend on the number of clients.
        everyone = jnp.arange(clients, dtype=jnp.int32)
        chance = jax.vmap(lambda i: jax.random.uniform(jax.random.fold_in(key, i), (2,), p.dtype))(everyone)
        here = chance[:, 0] < q
        weight = p / jnp.where(q > 0, q, 1) if self.weigh == "unbiased" else p
        if self.k is None:
            ids, active = everyone, here
        else:
            turn, ids = first_of(jax.random.fold_in(key, clients), jnp.where(here, chance[:, 1], 2), self.k)
            active = turn < 1
            present = jnp.sum(here).astype(p.dtype)
            if self.weigh == "unbiased":
                weight = weight * jnp.maximum(present / self.k, 1)
            weight = weight[ids]
        weight = jnp.where(active, weight, 0)
        if self.weigh == "renormalized":
            total = jnp.sum(weight)
            weight = weight / jnp.where(total > 0, total, 1)
        return Cohort(jnp.where(active, ids, clients).astype(jnp.int32), weight, active), memory

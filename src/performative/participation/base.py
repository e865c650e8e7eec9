"""The participation slot: who takes part, with what weight and how many steps, and how long the server waits."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Generic

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from performative.draws import Law
from performative.facts import AbstractPart
from performative.participation.law import MOST_COHORTS, CohortMoments, Cohorts, certain_steps, moments_of
from performative.theory.gaussian import WeightMoments
from performative.types import Cohort, Memory, Theta, Upload


class Selection(eqx.Module):
    """What the server knows when it selects a cohort.

    `measure(ids, key, samples)` asks clients for their loss at theta on their current data: over `samples` draws, or
    exactly if that is None. `takes(ids)` is how long these clients train, by the run's clock.
    """

    weights: Float[Array, " N"]
    tables: PyTree
    round: Int[Array, ""]
    theta: Theta
    measure: Callable[..., Float[Array, " K"]] | None = None
    takes: Callable[[Int[Array, " K"]], Float[Array, " K"]] | None = None


class AbstractParticipation(AbstractPart, Generic[Memory]):
    """Selects a cohort of `size(N)` rows each round. The server keeps the memory."""

    @abstractmethod
    def size(self, clients: int) -> int:
        """K, the number of rows of every cohort."""

    def sampling(self, clients: int) -> Law | None:
        """The distribution from `performative.draws` that cohorts follow, whatever the clients' data: each client at
        most once, with weight proportional to p_i. None if that does not hold, or is unknown."""
        return None

    def cohort_moments(self, weights: np.ndarray, round: int) -> CohortMoments | None:
        """First and second moments of who takes part in that round and of the weights a_i; None if unknown.

        They hold whatever the clients' data and whatever happened before. `weights` are p_i, [N].
        """
        return None

    def cohorts(self, weights: np.ndarray, round: int) -> Cohorts | None:
        """Every possible cohort of that round: its probability, its clients (each once, without padding rows) and their
        weights a_i. None if unknown. `cohort_count` returns how many there are."""
        return None

    def cohort_count(self, weights: np.ndarray, round: int) -> float | None:
        """An upper bound on the number of `cohorts`, without enumerating them; None if unknown."""
        return None

    def arrival_law(self, clients: int, work: np.ndarray) -> tuple["AbstractParticipation", np.ndarray] | None:
        """For clients that train on models of different ages, if arrivals do not depend on past arrivals.

        A participation with the same cohorts, in which all clients restart each round, and the factors w(0), w(1), ...
        of their weights by age, 0 beyond. None if ages do not matter, or depend on more. `work` [N] is the time clients
        take by the clock.
        """
        return None

    def enumerated_moments(self, weights: np.ndarray, round: int) -> CohortMoments | None:
        """`cohort_moments` by enumerating all `cohorts`; None above 20,000 of them."""
        count = self.cohort_count(weights, round)
        cohorts = self.cohorts(weights, round) if count is not None and count <= MOST_COHORTS else None
        return None if cohorts is None else moments_of(cohorts, len(weights))

    def repeats_after(self, clients: int) -> int | None:
        """Period in rounds of the distribution of cohorts, 1 if all rounds are alike; None if unknown."""
        return None

    def step_law(self, clients: int, default: int) -> np.ndarray | None:
        """P(tau_i = e + 1), [N, E], given what the algorithm asks for; None if unknown.

        tau_i is drawn independently for each client and round, regardless of who takes part.
        """
        return certain_steps(clients, default)

    def weight_moments(self, weights: np.ndarray) -> WeightMoments | None:
        """Second moments of a round's weights if their mean is p and rounds are independent; None if that does not
        hold, or is unknown."""
        return None

    def without_work(self) -> "AbstractParticipation":
        """The same participation without rules for local work."""
        return self

    def steps_of(self, clients: int, default: int) -> np.ndarray | None:
        """tau_i, [N], given what the algorithm asks for; None if it is not the same in every round."""
        return np.full(clients, default)

    def local_steps(self, default: int) -> int:
        """E, the largest tau_i, given what the algorithm asks for."""
        return default

    @property
    def is_full(self) -> bool:
        """Whether each round selects all clients, in order, with weights p."""
        return False

    @property
    def requires_loss(self) -> bool:
        """Whether `observe` needs the clients' training loss."""
        return False

    @property
    def measures_losses(self) -> bool:
        """Whether `select` queries clients' losses before they take part."""
        return False

    def oldest(self, clients: int) -> int:
        """The maximum age in rounds of a cohort client's model: the largest `Cohort.age`."""
        return 0

    @property
    def keeps_time(self) -> bool:
        """Whether `Cohort.elapsed` is the full duration of a round, clients' work included."""
        return False

    @property
    def first_k(self) -> int | None:
        """K if a live server asks everyone and takes the first K that answer; None if the cohort is selected."""
        return None

    @property
    def stays_at_work(self) -> bool:
        """Whether clients that do not report in a round keep training for a later one."""
        return False

    def live(self) -> "AbstractParticipation":
        """The participation for a live server: if this one simulates arrival times, the one that observes them."""
        return self

    def invited(self) -> "AbstractParticipation":
        """The participation that selects who is asked, before the answers come."""
        return self

    def first_weights(self, weights: Float[Array, " N"], ids: Int[Array, " K"], came: int) -> Float[Array, " K"]:
        """a_i = p_i N / K of the first K that answered, or of the fewer that `came`; other rows are ignored."""
        return jnp.take(weights, ids, mode="clip") * (weights.shape[0] / max(came, 1))

    @property
    def sums_to_one_if_equal(self) -> bool:
        """Whether the weights of every round sum to one if all p_i are equal."""
        return True

    @property
    def sums_to_one(self) -> bool:
        """Whether the weights of every round sum to one, whatever p is."""
        return True

    def tables(self, weights: np.ndarray) -> PyTree:
        """Tables computed once, on the host, before a run (None if there are none)."""
        return None

    def init(self, clients: int) -> Memory:
        """The server's memory at the start; None if nothing is remembered."""
        return None  # type: ignore[return-value] # Memory is None if nothing is remembered

    def begin(self, key: PRNGKeyArray, selection: Selection, memory: Memory) -> Memory:
        """The memory with what is drawn before the first round."""
        return memory

    def remembered(self, memory: Memory) -> dict[str, Float[Array, " N"]]:
        """What the server remembers about each client, by the names that `Record(clients=...)` accepts."""
        return {}

    def check(self, weights: np.ndarray) -> None:
        """Raise if this scheme cannot be used with these weights; called once, before a run."""

    @abstractmethod
    def select(self, key: PRNGKeyArray, selection: Selection, memory: Memory) -> tuple[Cohort, Memory]:
        """The cohort of a round."""

    def observe(self, cohort: Cohort, upload: Upload, memory: Memory) -> Memory:
        """Update the memory with a round's uploads (leading axis K)."""
        return memory


def check_draws(owner: str, k: object, clients: int | None = None) -> None:
    """Raise if K is not a whole number >= 1, or (without replacement) exceeds N."""
    if not (isinstance(k, int) and not isinstance(k, bool) and k >= 1):
        raise ValueError(f"{owner}(k={k!r}) needs a whole number of clients, k >= 1.")
    if clients is not None and k > clients:
        raise ValueError(f"{owner}(k={k}) needs 1 <= k <= {clients} clients; use Full() to take all of them.")

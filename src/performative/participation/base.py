"""The participation slot: who takes part, with what weight, how many steps, how long did the server wait?"""

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
    """What the server knows when it chooses.

    `measure(ids, key, samples)` asks clients for their loss at theta on their data as they are: over `samples` draws,
    or exactly where that is None. `takes(ids)` is how long these clients are at work, by the run's clock.
    """

    weights: Float[Array, " N"]
    tables: PyTree
    round: Int[Array, ""]
    theta: Theta
    measure: Callable[..., Float[Array, " K"]] | None = None
    takes: Callable[[Int[Array, " K"]], Float[Array, " K"]] | None = None


class AbstractParticipation(AbstractPart, Generic[Memory]):
    """Chooses a cohort of `size(N)` rows each round. The memory lives with the server."""

    @abstractmethod
    def size(self, clients: int) -> int:
        """K, the number of rows of every cohort."""

    def sampling(self, clients: int) -> Law | None:
        """By which law of `performative.draws` a cohort is drawn, whatever clients hold: each at most once, and with a
        weight in proportion to p_i. None where that is not so, or not known."""
        return None

    def cohort_moments(self, weights: np.ndarray, round: int) -> CohortMoments | None:
        """First and second moments of who takes part in that round and of the weights a_i; None where not known.

        They hold whatever clients hold and whatever happened before. `weights` are p_i, [N].
        """
        return None

    def cohorts(self, weights: np.ndarray, round: int) -> Cohorts | None:
        """Every cohort that can come about in that round: its probability, its clients (each once, without spare rows)
        and their weights a_i. None where they are not known. `cohort_count` says how many come."""
        return None

    def cohort_count(self, weights: np.ndarray, round: int) -> float | None:
        """How many `cohorts` gives at most, without going through them; None where they are not known."""
        return None

    def arrival_law(self, clients: int, work: np.ndarray) -> tuple["AbstractParticipation", np.ndarray] | None:
        """Of clients that work on models of different ages, where who comes does not depend on who came before.

        A participation with the same cohorts, all of whom begin anew each round, and the factors w(0), w(1), ... of
        their weights by age, 0 beyond. None where ages do not matter, or depend on more. `work` [N] is what clients
        take by the clock.
        """
        return None

    def enumerated_moments(self, weights: np.ndarray, round: int) -> CohortMoments | None:
        """`cohort_moments` by going through all `cohorts`; None above 20,000 of them."""
        count = self.cohort_count(weights, round)
        cohorts = self.cohorts(weights, round) if count is not None and count <= MOST_COHORTS else None
        return None if cohorts is None else moments_of(cohorts, len(weights))

    def repeats_after(self, clients: int) -> int | None:
        """After how many rounds the law of a cohort repeats, 1 where all rounds are alike; None where not known."""
        return None

    def step_law(self, clients: int, default: int) -> np.ndarray | None:
        """P(tau_i = e + 1), [N, E], given what the algorithm asks for; None where not known.

        tau_i is drawn for each client and round by itself, whoever takes part.
        """
        return certain_steps(clients, default)

    def weight_moments(self, weights: np.ndarray) -> WeightMoments | None:
        """Second moments of a round's weights where their mean is p and rounds are independent; None where that is not
        so, or not known."""
        return None

    def without_work(self) -> "AbstractParticipation":
        """Who takes part, whatever work they do."""
        return self

    def steps_of(self, clients: int, default: int) -> np.ndarray | None:
        """tau_i, [N], given what the algorithm asks for; None where it is not the same in every round."""
        return np.full(clients, default)

    def local_steps(self, default: int) -> int:
        """E, the largest tau_i, given what the algorithm asks for."""
        return default

    @property
    def is_full(self) -> bool:
        """Whether each round takes all clients, in order, with weights p."""
        return False

    @property
    def requires_loss(self) -> bool:
        """Whether `observe` needs the loss that clients see while they train."""
        return False

    @property
    def measures_losses(self) -> bool:
        """Whether `select` asks clients for losses before they take part."""
        return False

    def oldest(self, clients: int) -> int:
        """How many rounds ago a client of a cohort can have taken its model: the largest `Cohort.age`."""
        return 0

    @property
    def keeps_time(self) -> bool:
        """Whether `Cohort.elapsed` is all the time of a round, clients' work included."""
        return False

    @property
    def first_k(self) -> int | None:
        """K where a live server asks everyone and takes the first K that answer; None where the cohort is chosen."""
        return None

    @property
    def stays_at_work(self) -> bool:
        """Whether clients that are not heard in a round go on working, for a later one."""
        return False

    def live(self) -> "AbstractParticipation":
        """What a live server goes by: where a part simulates when clients finish, the one that finds out."""
        return self

    def invited(self) -> "AbstractParticipation":
        """Who is asked, before the answers come."""
        return self

    def first_weights(self, weights: Float[Array, " N"], ids: Int[Array, " K"], came: int) -> Float[Array, " K"]:
        """a_i = p_i N / K of the first K that answered, or of the fewer that `came`; other rows do not count."""
        return jnp.take(weights, ids, mode="clip") * (weights.shape[0] / max(came, 1))

    @property
    def sums_to_one_if_equal(self) -> bool:
        """Whether they do where all p_i are equal."""
        return True

    @property
    def sums_to_one(self) -> bool:
        """Whether the weights of every round sum to one, whatever p is."""
        return True

    def tables(self, weights: np.ndarray) -> PyTree:
        """What is worked out once, on the host, before a run (None where there is nothing)."""
        return None

    def init(self, clients: int) -> Memory:
        """The server's memory at the start; None where nothing is remembered."""
        return None  # type: ignore[return-value]  # Memory is None where nothing is remembered

    def begin(self, key: PRNGKeyArray, selection: Selection, memory: Memory) -> Memory:
        """The memory with what is drawn before the first round."""
        return memory

    def remembered(self, memory: Memory) -> dict[str, Float[Array, " N"]]:
        """What the server remembers of each client that `Record(clients=...)` may ask for, by name."""
        return {}

    def check(self, weights: np.ndarray) -> None:
        """Refuse what this scheme cannot serve; called once, before a run."""

    @abstractmethod
    def select(self, key: PRNGKeyArray, selection: Selection, memory: Memory) -> tuple[Cohort, Memory]:
        """The cohort of a round."""

    def observe(self, cohort: Cohort, upload: Upload, memory: Memory) -> Memory:
        """What the server remembers of a round's uploads (leading axis K) for its next choices."""
        return memory


def check_draws(owner: str, k: object, clients: int | None = None) -> None:
    """Refuse a K that is not a whole number of at least 1, or (without replacement) above N."""
    if not (isinstance(k, int) and not isinstance(k, bool) and k >= 1):
        raise ValueError(f"{owner}(k={k!r}) needs a whole number of clients, k >= 1.")
    if clients is not None and k > clients:
        raise ValueError(f"{owner}(k={k}) needs 1 <= k <= {clients} clients; use Full() to take all of them.")

"""How a client samples the batch of each local step."""

from abc import abstractmethod
from typing import Any, Generic, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from performative._base.checks import check_number
from performative._base.sampling import distinct, shuffled_positions
from performative.draws import Epochs, Everyone, Law, PoissonSampling, WithoutReplacement, WithReplacement
from performative.facts import AbstractPart, one_number
from performative.populations.base import AbstractPopulation
from performative.types import Memory, Noise, Numbers, Theta, is_concrete, number, whole

__all__ = ["AbstractBatch", "Fixed", "Poisson", "Shuffled", "Uniform", "Whole"]

Drawn = tuple[Noise, Bool[Array, "E n"] | None]


@runtime_checkable
class Table(Protocol):
    """What the size of a batch may depend on; populations implement it."""

    @property
    def capacity(self) -> Any: ...

    @property
    def rows(self) -> Any: ...


class AbstractBatch(AbstractPart, Generic[Memory]):
    """One draw serves all E steps of a client's round: noise [E, n, ...] and a mask [E, n] or None.

    `key` is new each round; `standing_key` is the client's own and constant throughout the run.
    """

    def init(self) -> Memory:
        """A client's memory at the start."""
        return None  # type: ignore[return-value]  # Memory is None if nothing is remembered

    @abstractmethod
    def draw(
        self, key: PRNGKeyArray, standing_key: PRNGKeyArray, population: AbstractPopulation, theta: Theta, steps: int,
        memory: Memory,
    ) -> Drawn:  # fmt: skip
        """Theta-free randomness of `steps` batches for one client."""

    @abstractmethod
    def expected(self, population: Table) -> Array | float:
        """The expected number of samples per step: a constant of the sampler, which no draw can change.

        `population.rows` is infinite if unknown.
        """

    def largest(self, population: Table) -> int:
        """The maximum number of samples in a step."""
        return population.capacity or 1

    def sampling(self, rows: int | None) -> Law | None:
        """The distribution from `performative.draws` of a step on a table of `rows` rows, whatever the data.

        None if it depends on the data, or is unknown. `rows` is None if their number is unknown: the answer must then
        hold for every number.
        """
        return None

    def advance(self, memory: Memory, steps: Int[Array, ""]) -> Memory:
        """The memory after `steps` local steps."""
        return memory

    def check(self, capacity: int | None) -> None:
        """Raise if a client is too small for such a batch (capacity: its number of rows, None if unlimited)."""


class AbstractSized(AbstractBatch[Memory]):
    """n samples per step, the same for every client."""

    n: int = whole()

    def __check_init__(self) -> None:
        if isinstance(self.n, bool) or not (isinstance(self.n, int) and self.n >= 1):
            raise ValueError(f"{type(self).__name__}(n={self.n!r}) needs a whole number of samples, n >= 1.")

    def largest(self, population: Table) -> int:
        return self.n

    def expected(self, population: Table) -> float:
        return float(self.n)


class Fixed(AbstractSized[None]):
    """n independent samples per step (with replacement if there is a table)."""

    references = ()

    def sampling(self, rows: int | None) -> WithReplacement:
        return WithReplacement(self.n, rows)

    def draw(
        self, key: PRNGKeyArray, standing_key: PRNGKeyArray, population: AbstractPopulation, theta: Theta, steps: int,
        memory: None,
    ) -> Drawn:  # fmt: skip
        return population.draw(key, (steps, self.n), theta), None


class Uniform(AbstractSized[None]):
    """n distinct rows of the client's table per step, every subset equally likely.

    If the population has no table the samples are independent, as with `Fixed`.
    """

    references = ()

    def sampling(self, rows: int | None) -> WithoutReplacement | Everyone:
        return Everyone() if rows is None else WithoutReplacement(self.n, rows)

    def check(self, capacity: int | None) -> None:
        if capacity is not None and self.n > capacity:
            raise ValueError(
                f"Uniform(n={self.n}) draws distinct rows, but a client has only {capacity}; use a smaller n."
            )

    def draw(
        self, key: PRNGKeyArray, standing_key: PRNGKeyArray, population: AbstractPopulation, theta: Theta, steps: int,
        memory: None,
    ) -> Drawn:  # fmt: skip
        if population.capacity is None:
            return population.draw(key, (steps, self.n), theta), None
        key_rows, key_rest = jax.random.split(key)

        def pick(key: PRNGKeyArray) -> Array:
            return distinct(key, self.n, population.rows, population.capacity)

        rows = jax.vmap(pick)(jax.random.split(key_rows, steps))
        return population.draw(key_rest, (steps, self.n), theta, rows), None


class Shuffled(AbstractSized[Int[Array, ""]]):
    """Epochs: every row once in random order, n per step; then a new order. The last, incomplete batch is dropped.

    The memory is the client's count of steps; the order itself is computed, not stored.
    """

    references = ()

    def sampling(self, rows: int | None) -> Epochs | Everyone:
        return Everyone() if rows is None else Epochs(self.n, rows)

    def init(self) -> Int[Array, ""]:
        return jnp.zeros((), jnp.int32)

    def advance(self, memory: Int[Array, ""], steps: Int[Array, ""]) -> Int[Array, ""]:
        return memory + steps

    def check(self, capacity: int | None) -> None:
        if capacity is None:
            raise ValueError("Shuffled(n) needs a population with a finite table of rows; use Fixed(n) here.")
        if self.n > capacity:
            raise ValueError(f"Shuffled(n={self.n}): a client has only {capacity} rows; use a smaller n.")

    def draw(
        self, key: PRNGKeyArray, standing_key: PRNGKeyArray, population: AbstractPopulation, theta: Theta, steps: int,
        memory: Int[Array, ""],
    ) -> Drawn:  # fmt: skip
        batches = jnp.maximum(jnp.asarray(population.rows, jnp.int32) // self.n, 1)

        def rows(step: Array) -> Array:
            epoch_key = jax.random.fold_in(standing_key, step // batches)
            position = (step % batches) * self.n + jnp.arange(self.n, dtype=jnp.int32)
            return shuffled_positions(epoch_key, position, population.rows)

        picked = jax.vmap(rows)(memory + jnp.arange(steps, dtype=jnp.int32))
        return population.draw(key, (steps, self.n), theta, picked), None


class Whole(AbstractBatch[None]):
    """Every row of the client's table at each step: local gradient descent.

    Clients with fewer rows than the largest are masked; a step costs as many samples as the largest table has.
    """

    references = ()

    def sampling(self, rows: int | None) -> Everyone:
        return Everyone()

    def expected(self, population: Table) -> Array | float:
        rows = population.rows
        return float(rows) if isinstance(rows, int) else jnp.asarray(rows).astype(jnp.result_type(float))

    def check(self, capacity: int | None) -> None:
        if capacity is None:
            raise ValueError("Whole() needs a population with a finite table of rows; use Fixed(n) here.")

    def draw(
        self, key: PRNGKeyArray, standing_key: PRNGKeyArray, population: AbstractPopulation, theta: Theta, steps: int,
        memory: None,
    ) -> Drawn:  # fmt: skip
        every = jnp.arange(self.largest(population), dtype=jnp.int32)
        shape, mask = (steps, len(every)), None
        if not isinstance(population.rows, int):
            here = every < population.rows
            # Row 0, which every table has, fills masked places.
            every, mask = jnp.where(here, every, 0), jnp.broadcast_to(here, shape)
        return population.draw(key, shape, theta, jnp.broadcast_to(every, shape)), mask


class Poisson(AbstractBatch[None]):
    """Each row of the client's table enters a step with probability `rate`, independently of the others.

        count ~ Binomial(rows, rate),      min(count, n_max) different rows, every set of that size equally likely

    The Poisson sampling of DP-SGD's accountants (Abadi et al. 2016). `n_max` is the cost of a step; it may exceed the
    rows of a client. If more rows are drawn, a uniformly random n_max of them are kept. A batch can be empty.
    `expected` is rate * rows, even if n_max truncates some batches.
    """

    references = ("abadi2016deep",)

    rate: Numbers = number()
    n_max: int = whole()

    def __check_init__(self) -> None:
        check_number("Poisson", rate=self.rate)
        if is_concrete(self.rate) and not 0 < self.rate <= 1:
            raise ValueError(f"Poisson: rate must be one probability for all rows, 0 < rate <= 1; got {self.rate}.")
        if isinstance(self.n_max, bool) or not (isinstance(self.n_max, int) and self.n_max >= 1):
            raise ValueError(
                f"Poisson: n_max must be a whole number >= 1, the maximum number of rows in a step; got {self.n_max!r}."
            )

    def largest(self, population: Table) -> int:
        return self.n_max

    def sampling(self, rows: int | None) -> PoissonSampling | Everyone:
        return Everyone() if rows is None else PoissonSampling(one_number(self.rate, "Poisson: rate"), rows, self.n_max)

    def expected(self, population: Table) -> Array | float:
        rate = jnp.asarray(self.rate)
        return rate * jnp.asarray(population.rows, rate.dtype)

    def check(self, capacity: int | None) -> None:
        if capacity is None:
            raise ValueError("Poisson(rate, n_max) needs a population with a finite table of rows; use Fixed(n) here.")

    def draw(
        self, key: PRNGKeyArray, standing_key: PRNGKeyArray, population: AbstractPopulation, theta: Theta, steps: int,
        memory: None,
    ) -> Drawn:  # fmt: skip
        key_rows, key_rest = jax.random.split(key)

        def pick(key: PRNGKeyArray) -> tuple[Array, Array]:
            return self._pick(key, population.rows, population.capacity or 1)

        rows, mask = jax.vmap(pick)(jax.random.split(key_rows, steps))
        return population.draw(key_rest, (steps, self.n_max), theta, rows), mask

    def _pick(
        self, key: PRNGKeyArray, rows: Array | int, capacity: int
    ) -> tuple[Int[Array, " n_max"], Bool[Array, " n_max"]]:
        """The rows of one batch and which places they fill. Row 0, which every table has, fills the others."""
        key_picked, key_cut = jax.random.split(key)
        rows = jnp.asarray(rows, jnp.int32)
        picked, mask = bernoulli_rows(key_picked, rows, self.rate, self.n_max + 1)
        picked, full, mask = jnp.where(mask, picked, 0)[:-1], mask[-1], mask[:-1]
        if capacity <= self.n_max:
            return picked, mask
        # More than n_max were drawn. A random n_max of them are a random n_max of all rows, so draw these. Rare, so
        # computed only when it happens.
        place = jnp.arange(self.n_max, dtype=jnp.int32) % jnp.maximum(rows, 1)
        instead = shuffled_positions(key_cut, place, rows, needed=full)
        return jnp.where(full, instead, picked), mask


def bernoulli_rows(
    key: PRNGKeyArray, trials: Int[Array, ""], chance: Float[Array | np.ndarray, ""], most: int
) -> tuple[Int[Array, " most"], Bool[Array, " most"]]:
    """The first `most` successes of `trials` independent trials, and which of these places are filled, in O(most).

    Uses the waiting times between them. In float32 a count from jax.random.binomial is off by 6% of a probability at
    1e6 trials.
    """
    chance = jnp.asarray(chance)
    u = jax.random.uniform(key, (2, most), chance.dtype, minval=jnp.finfo(chance.dtype).tiny)
    past = trials + 1
    # A wait that does not fit is truncated to `past`, so the running sum stays below 2^31.
    waits = geometric_waits(u, chance, past)
    ends = jax.lax.associative_scan(lambda a, b: jnp.minimum(a + b, past), waits)
    return ends - 1, ends <= trials


def geometric_waits(
    u: Float[Array, "2 most"], chance: Float[Array, ""], longest: Int[Array, ""]
) -> Int[Array, " most"]:
    """Trials up to the next success, at most `longest`, from two uniforms each.

        wait = m Q + R + 1,      Q ~ Geometric(1 - (1-c)^m),      P(R = r) ~ (1-c)^r for r < m,      m = 1 / (256 c)

    Q and R are independent. A float32 uniform resolves 2^23 values: a single draw of the whole wait would give
    individual trials a probability that is off by 8% at c = 1e-6, this one by 0.07%.
    """
    stretch = jnp.clip(jnp.floor(1 / (256 * chance)), 1, 2.0**24)
    m = stretch.astype(jnp.int32)
    fail = jnp.log1p(-chance)  # log of the probability of a failure; -inf if every trial succeeds
    some = -jnp.expm1(stretch * fail)  # the probability of a success within m trials
    whole = jnp.minimum(jnp.floor(jnp.log(u[0]) / jnp.log1p(-some)), 2.0**30).astype(jnp.int32)
    rest = jnp.minimum(jnp.floor(jnp.log1p(-u[1] * some) / fail).astype(jnp.int32), m - 1)
    return jnp.minimum(jnp.minimum(whole, longest // m + 1) * m + rest + 1, longest)

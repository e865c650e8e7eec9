"""How a client picks the samples of each local step."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from performative.sampling import distinct, shuffled_position
from performative.types import Memory, Noise, Theta, whole


class AbstractBatch(eqx.Module):
    """One draw serves all E steps of a client's round: noise [E, n, ...] and a mask [E, n] or None.

    `key` is new each round; `standing_key` is the client's own and stays the same throughout the run.
    """

    def init(self) -> Memory:
        """A client's memory at the start."""
        return None

    @abstractmethod
    def draw(
        self,
        key: PRNGKeyArray,
        standing_key: PRNGKeyArray,
        population: Any,
        theta: Theta,
        steps: int,
        memory: Memory,
    ) -> tuple[Noise, Bool[Array, "E n"] | None]:
        """Theta-free randomness of `steps` batches for one client."""

    def advance(self, memory: Memory, steps: Int[Array, ""]) -> Memory:
        """The memory after `steps` local steps."""
        return memory

    def check(self, capacity: int | None) -> None:
        """Refuse a client that cannot serve such a batch (capacity: its number of rows, None if unlimited)."""


def _check_size(name: str, n: Any) -> None:
    if isinstance(n, bool) or not (isinstance(n, int) and n >= 1):
        raise ValueError(f"{name}(n={n!r}) needs a whole number of samples, n >= 1.")


class Fixed(AbstractBatch):
    """n samples a step, independent of each other (with replacement where there is a table)."""

    n: int = whole()

    def __check_init__(self) -> None:
        _check_size("Fixed", self.n)

    def draw(self, key, standing_key, population, theta, steps, memory):
        return population.draw(key, (steps, self.n), theta), None


class Uniform(AbstractBatch):
    """n different rows of the client's table a step, every subset equally likely.

    Where the population has no table the samples are independent, as with `Fixed`.
    """

    n: int = whole()

    def __check_init__(self) -> None:
        _check_size("Uniform", self.n)

    def check(self, capacity: int | None) -> None:
        if capacity is not None and self.n > capacity:
            raise ValueError(
                f"Uniform(n={self.n}) draws different rows, but a client has only {capacity}; use a smaller n."
            )

    def draw(self, key, standing_key, population, theta, steps, memory):
        if population.capacity is None:
            return population.draw(key, (steps, self.n), theta), None
        key_rows, key_rest = jax.random.split(key)
        pick = jax.vmap(lambda k: distinct(k, self.n, population.rows, population.capacity))
        rows = pick(jax.random.split(key_rows, steps))
        return population.draw(key_rest, (steps, self.n), theta, rows), None


class Shuffled(AbstractBatch):
    """Epochs: every row once in a random order, n a step; then a new order. The last, short batch is left out.

    The memory is the client's count of steps; the order itself is computed, not stored.
    """

    n: int = whole()

    def __check_init__(self) -> None:
        _check_size("Shuffled", self.n)

    def init(self) -> Memory:
        return jnp.zeros((), jnp.int32)

    def advance(self, memory: Memory, steps: Int[Array, ""]) -> Memory:
        return memory + steps

    def check(self, capacity: int | None) -> None:
        if capacity is None:
            raise ValueError("Shuffled(n) needs a population with a finite table of rows; use Fixed(n) here.")
        if self.n > capacity:
            raise ValueError(f"Shuffled(n={self.n}): a client has only {capacity} rows; use a smaller n.")

    def draw(self, key, standing_key, population, theta, steps, memory):
        batches = jnp.maximum(jnp.asarray(population.rows, jnp.int32) // self.n, 1)

        def rows(step: Array) -> Array:
            epoch_key = jax.random.fold_in(standing_key, step // batches)
            position = (step % batches) * self.n + jnp.arange(self.n, dtype=jnp.int32)
            return jax.vmap(lambda p: shuffled_position(epoch_key, p, population.rows))(position)

        picked = jax.vmap(rows)(memory + jnp.arange(steps, dtype=jnp.int32))
        return population.draw(key, (steps, self.n), theta, picked), None

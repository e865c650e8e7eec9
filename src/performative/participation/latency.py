"""How long clients take."""

from abc import abstractmethod

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from performative._base.checks import check_finite, check_one_a_client
from performative.facts import AbstractPart
from performative.types import Numbers, is_concrete, number


class AbstractLatency(AbstractPart):
    """How long clients take to answer. Parameters are scalars, or have one entry per client."""

    @abstractmethod
    def draw(self, key: PRNGKeyArray, clients: int) -> Float[Array, " N"]:
        """The time that each client takes this round."""

    def exchangeable(self) -> bool:
        """Whether the clients' times are i.i.d. and almost surely distinct."""
        return False

    def arrival_rates(self, clients: int) -> Float[np.ndarray, " N"] | None:
        """Arrival rate of each client per unit of time, if waiting is memoryless. None otherwise."""
        return None

    def check(self, owner: str, clients: int) -> None:
        """Raise if parameters are for another number of clients; called once, before a run."""
        check_one_a_client(f"{owner}: {type(self).__name__}.", clients, **vars(self))

    def of(self, key: PRNGKeyArray, ids: Int[Array, " K"], clients: int) -> Float[Array, " K"]:
        """The time that each of these clients takes."""
        return self.draw(key, clients)[ids]

    def finish(
        self,
        key: PRNGKeyArray,
        ids: Int[Array, " K"],
        clients: int,
        start: Float[Array, " K"],
        work: Float[Array, " K"],
    ) -> Float[Array, " K"]:
        """When clients that start at `start` with this much work answer: start + work + latency."""
        return start + work + self.of(key, ids, clients)


class AbstractDrawn(AbstractLatency):
    """Latencies whose cost is proportional to the number of clients asked."""

    @abstractmethod
    def of(self, key: PRNGKeyArray, ids: Int[Array, " K"], clients: int) -> Float[Array, " K"]: ...

    def draw(self, key: PRNGKeyArray, clients: int) -> Float[Array, " N"]:
        return self.of(key, jnp.arange(clients, dtype=jnp.int32), clients)


def _check_positive(owner: str, **values: Numbers) -> None:
    for name, value in values.items():
        check_finite(owner, **{name: value})
        if is_concrete(value) and not np.all(np.asarray(value) > 0):
            raise ValueError(f"{owner}: {name} must be positive; got {value}.")


def _at(value: Numbers, ids: Int[Array, " K"]) -> Array:
    """The values of these clients."""
    return jnp.take(value, ids, mode="clip") if np.ndim(value) else jnp.asarray(value)


def _alike(*values: Numbers) -> bool:
    """Whether all clients have the same values."""
    return is_concrete(values) and all(np.ptp(np.asarray(value)) == 0 for value in values)


class Exponential(AbstractDrawn):
    """Exponential waiting times with the given mean."""

    references = ()
    ignores_data = True

    mean: Numbers = number(default=1.0)

    def __check_init__(self) -> None:
        _check_positive("Exponential", mean=self.mean)

    def exchangeable(self) -> bool:
        return _alike(self.mean)

    def arrival_rates(self, clients: int) -> Float[np.ndarray, " N"]:
        return np.broadcast_to(1.0 / np.asarray(self.mean, np.float64), (clients,))

    def of(self, key: PRNGKeyArray, ids: Int[Array, " K"], clients: int) -> Float[Array, " K"]:
        return _at(self.mean, ids) * jax.random.exponential(key, ids.shape, jnp.result_type(float))


class LogNormal(AbstractDrawn):
    """median * exp(spread * normal)."""

    references = ()
    ignores_data = True

    median: Numbers = number(default=1.0)
    spread: Numbers = number(default=1.0)

    def __check_init__(self) -> None:
        _check_positive("LogNormal", median=self.median)
        check_finite("LogNormal", spread=self.spread)

    def exchangeable(self) -> bool:
        return _alike(self.median, self.spread) and bool(np.all(np.asarray(self.spread) != 0))

    def of(self, key: PRNGKeyArray, ids: Int[Array, " K"], clients: int) -> Float[Array, " K"]:
        normal = jax.random.normal(key, ids.shape, jnp.result_type(float))
        return _at(self.median, ids) * jnp.exp(_at(self.spread, ids) * normal)


class UniformLatency(AbstractDrawn):
    """Uniform between 0 and `longest`: the straggler model of Jin et al. 2024, Figure 1b."""

    references = ()
    ignores_data = True

    longest: Numbers = number(default=1.0)

    def __check_init__(self) -> None:
        _check_positive("UniformLatency", longest=self.longest)

    def exchangeable(self) -> bool:
        return _alike(self.longest)

    def of(self, key: PRNGKeyArray, ids: Int[Array, " K"], clients: int) -> Float[Array, " K"]:
        return _at(self.longest, ids) * jax.random.uniform(key, ids.shape, jnp.result_type(float))


class ConstantLatency(AbstractDrawn):
    """Always the same time, a number or one per client."""

    references = ()
    ignores_data = True

    time: Numbers = number(default=1.0)

    def __check_init__(self) -> None:
        check_finite("ConstantLatency", time=self.time)
        if is_concrete(self.time) and np.any(np.asarray(self.time) < 0):
            raise ValueError(f"ConstantLatency: time must not be negative; got {self.time}.")

    def of(self, key: PRNGKeyArray, ids: Int[Array, " K"], clients: int) -> Float[Array, " K"]:
        return jnp.broadcast_to(_at(self.time, ids), ids.shape).astype(jnp.result_type(float))

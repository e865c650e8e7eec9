"""Stragglers: the server takes the first K that answer."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from performative._base.checks import check_finite, check_one_a_client
from performative._base.sampling import first_of
from performative.facts import AbstractPart
from performative.participation.base import AbstractParticipation, Selection, check_draws
from performative.participation.schemes import Full
from performative.types import Cohort, Numbers, as_whole, is_concrete, number


class AbstractLatency(AbstractPart):
    """How long clients take to answer. Parameters are numbers, or one a client."""

    @abstractmethod
    def draw(self, key: PRNGKeyArray, clients: int) -> Float[Array, " N"]:
        """The time that each client takes this round."""


def _check_positive(owner: str, **values: Numbers) -> None:
    for name, value in values.items():
        check_finite(owner, **{name: value})
        if is_concrete(value) and not np.all(np.asarray(value) > 0):
            raise ValueError(f"{owner}: {name} must be positive; got {value}.")


class Exponential(AbstractLatency):
    """Exponential waiting times with the given mean."""

    references = ()
    ignores_data = True

    mean: Numbers = number(default=1.0)

    def __check_init__(self) -> None:
        _check_positive("Exponential", mean=self.mean)

    def draw(self, key: PRNGKeyArray, clients: int) -> Float[Array, " N"]:
        return self.mean * jax.random.exponential(key, (clients,), jnp.result_type(float))


class LogNormal(AbstractLatency):
    """median * exp(spread * normal)."""

    references = ()
    ignores_data = True

    median: Numbers = number(default=1.0)
    spread: Numbers = number(default=1.0)

    def __check_init__(self) -> None:
        _check_positive("LogNormal", median=self.median)
        check_finite("LogNormal", spread=self.spread)

    def draw(self, key: PRNGKeyArray, clients: int) -> Float[Array, " N"]:
        return self.median * jnp.exp(self.spread * jax.random.normal(key, (clients,), jnp.result_type(float)))


class UniformLatency(AbstractLatency):
    """Uniform between 0 and `longest`: the straggler model of Jin et al. 2024, Figure 1b."""

    references = ()
    ignores_data = True

    longest: Numbers = number(default=1.0)

    def __check_init__(self) -> None:
        _check_positive("UniformLatency", longest=self.longest)

    def draw(self, key: PRNGKeyArray, clients: int) -> Float[Array, " N"]:
        return self.longest * jax.random.uniform(key, (clients,), jnp.result_type(float))


class FirstK(AbstractParticipation[None]):
    """The first K of all N clients to answer; the server waits for the K-th.

        a_i = p_i N / K   for the first K

    Where all latencies have one distribution this is Scheme II. Where they differ, fast clients are heard more often
    than their weight says and the point that training settles at moves with them. Costs O(N) a round: all are asked.
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
        check_one_a_client(f"FirstK: {type(self.latency).__name__}.", len(weights), **vars(self.latency))

    def size(self, clients: int) -> int:
        return self.k

    def select(self, key: PRNGKeyArray, selection: Selection, memory: None) -> tuple[Cohort, None]:
        clients = selection.weights.shape[0]
        key_time, key_ties = jax.random.split(key)
        first, ids = first_of(key_ties, self.latency.draw(key_time, clients), self.k)
        return Cohort(ids, self.first_weights(selection.weights, ids, self.k), elapsed=first[-1]), memory

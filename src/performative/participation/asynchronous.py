"""Asynchrony: clients start and finish when they can, and the server moves when a buffer is full."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from performative._base.checks import check_counts, check_finite
from performative.facts import declared
from performative.participation.base import AbstractParticipation, Selection
from performative.participation.first_k import FirstK
from performative.participation.in_flight import InFlight, nobody_yet, replaced
from performative.participation.latency import AbstractLatency, Exponential
from performative.participation.schemes import Full
from performative.types import Cohort, Numbers, Unchecked, as_whole, is_concrete, number

# The default limit is this multiple of the mean age of an update. Memoryless waiting times exceed it in 0.03%.
_OLD = 8


class Asynchronous(AbstractParticipation[InFlight]):
    """Clients train all the time; the server moves whenever `buffer` of them have finished (FedBuff).

        theta_{t+1} = theta_t + sum over the buffer of a_i delta_i(theta_{t - s_i}),   a_i = (p_i N / B) w(s_i)

    s_i counts the server's moves while client i was training. A round is one move; it lasts until the buffer is full.
    People respond to the model that their client trains on. A buffer of 1 applies updates on arrival; one as large as
    the concurrency waits for everybody, and no update is stale.

    Args:
        buffer: B, the updates per move
        concurrency: C, how many clients train at any time, drawn uniformly from the idle ones whenever a buffer has
            been applied; None for all: those in the buffer then restart. If all train, fast clients contribute more
            often than their weight implies, as with `FirstK`
        latency: time a client takes in addition to its steps and communication (set by the run's `Clock`): a
            distribution such as pf.participation.Exponential(mean), or a `Trace`; None for zero
        staleness: the power a in w(s) = (1 + s)^-a, or a list of weights w(0), w(1), ..., of which the last applies to
            all older updates
        limit: updates older than this many moves (1 or more) are dropped; None for 8 times the mean age C / B. This
            many past models are kept

    Costs O(B sqrt(C)) per round, independent of N. Times are in the run's precision: in float32 the order of arrivals
    is lost some 10 million latencies after the start.
    """

    references = ("nguyen2022federated", "xie2019asynchronous")
    ignores_data = True
    sums_to_one = False
    sums_to_one_if_equal = False
    keeps_time = True
    stays_at_work = True

    buffer: int = eqx.field(static=True, converter=as_whole)
    concurrency: int | None = eqx.field(static=True, converter=as_whole, default=None)
    latency: Unchecked[AbstractLatency | None] = None
    staleness: Numbers = number(default=0.0)
    limit: int | None = eqx.field(static=True, converter=as_whole, default=None)

    def __check_init__(self) -> None:
        counts = {"buffer": self.buffer, "concurrency": self.concurrency, "limit": self.limit}
        check_counts(**{name: count for name, count in counts.items() if count is not None or name == "buffer"})
        if self.concurrency is not None and self.concurrency < self.buffer:
            raise ValueError(
                f"Asynchronous: a buffer of {self.buffer} is never full with {self.concurrency} clients training; "
                "use concurrency >= buffer."
            )
        if self.latency is not None and not isinstance(self.latency, AbstractLatency):
            raise ValueError(
                "Asynchronous: latency must be a distribution such as pf.participation.Exponential(mean); "
                f"got {self.latency!r}."
            )
        check_finite("Asynchronous", staleness=self.staleness)
        if np.ndim(self.staleness) > 1 or np.size(self.staleness) == 0:
            raise ValueError(
                "Asynchronous: staleness must be a power >= 0, or a list of weights w(0), w(1), ...; got shape "
                f"{np.shape(self.staleness)}."
            )
        if is_concrete(self.staleness) and np.any(np.asarray(self.staleness) < 0):
            raise ValueError(f"Asynchronous: staleness weights must not be negative; got {self.staleness}.")

    def working(self, clients: int) -> int:
        """C."""
        return clients if self.concurrency is None else self.concurrency

    def oldest(self, clients: int) -> int:
        working = self.working(clients)
        if working == self.buffer:
            return 0
        return _OLD * -(-working // self.buffer) if self.limit is None else self.limit

    def size(self, clients: int) -> int:
        return self.buffer

    def check(self, weights: np.ndarray) -> None:
        for name in ("buffer", "concurrency"):
            if (count := getattr(self, name)) is not None and count > len(weights):
                raise ValueError(f"Asynchronous: {name}={count}, but there are only {len(weights)} clients.")
        if self.latency is not None:
            self.latency.check("Asynchronous", len(weights))

    def arrival_law(self, clients: int, work: np.ndarray) -> tuple[AbstractParticipation, np.ndarray] | None:
        """If all clients train: for memoryless waiting times, or if the server waits for everybody."""
        if self.working(clients) < clients:
            return None
        ages = np.arange(self.oldest(clients) + 1)
        if np.ndim(self.staleness):
            discount = np.asarray(self.staleness, np.float64)[np.minimum(ages, np.size(self.staleness) - 1)]
        else:
            discount = (1.0 + ages) ** -np.float64(self.staleness)
        if self.buffer == clients:
            return Full(), discount
        if np.any(work != 0.0) or self.latency is None or declared(self.latency, "arrival_rates", clients) is None:
            return None
        return FirstK(self.buffer, self.latency), discount

    def live(self) -> FirstK:
        """The first B that answer, whichever model they took; their latencies are observed, not simulated."""
        return FirstK(self.buffer, Exponential(1.0))

    def init(self, clients: int) -> InFlight:
        # If some finish before others, ties must not favor any id, so places are assigned at random.
        return nobody_yet(self.working(clients), clients, in_order=self.buffer == clients)

    def begin(self, key: PRNGKeyArray, selection: Selection, memory: InFlight) -> InFlight:
        """All working clients start on the first model, at time 0."""
        key_who, key_time = jax.random.split(key)
        order = None if memory.order is None else jax.random.permutation(key_who, memory.order)
        places = jnp.arange(memory.start.shape[0], dtype=jnp.int32)
        finish = self._finish(key_time, selection, places if order is None else order[places], memory.now)
        return memory.restart(places, selection.round, memory.now, finish, order)

    def discount(self, age: Int[Array, " B"]) -> Float[Array, " B"]:
        """w(s)."""
        if np.ndim(self.staleness):
            return jnp.take(self.staleness, age, mode="clip")
        return jnp.power(1 + age.astype(jnp.result_type(float)), -self.staleness)

    def select(self, key: PRNGKeyArray, selection: Selection, memory: InFlight) -> tuple[Cohort, InFlight]:
        clients = selection.weights.shape[0]
        working = self.working(clients)
        key_who, key_time = jax.random.split(key)
        if self.buffer == working:
            places, when = jnp.arange(working, dtype=jnp.int32), jnp.max(memory.finish.reshape(-1)[:working])
        else:
            times, places = memory.first(self.buffer)
            when = times[-1]
        ids, starts, order = replaced(key_who, memory, places)
        age = selection.round - memory.start[places]
        weight = selection.weights[ids] * (clients / self.buffer) * self.discount(age).astype(selection.weights.dtype)
        elapsed = when - memory.now
        finish = self._finish(key_time, selection, starts, when)
        memory = memory.restart(jnp.where(age >= 0, places, working), selection.round + 1, when, finish, order)
        if self.buffer == working:
            return Cohort(ids, weight, elapsed=elapsed), memory
        fresh = age <= self.oldest(clients)
        ids, weight = jnp.where(fresh, ids, clients), jnp.where(fresh, weight, 0)
        return Cohort(ids, weight, fresh, elapsed=elapsed, age=age), memory

    def _finish(self, key: PRNGKeyArray, selection: Selection, ids: Int[Array, " B"], now: Any) -> Float[Array, " B"]:
        clients, start = selection.weights.shape[0], jnp.broadcast_to(now, ids.shape)
        work = jnp.zeros(ids.shape) if selection.takes is None else selection.takes(ids)
        work = work.astype(start.dtype)
        if self.latency is None:
            return start + work
        return self.latency.finish(key, ids, clients, start, work).astype(start.dtype)

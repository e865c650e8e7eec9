"""People who leave when served badly, join later, or are paid to stay."""

import dataclasses
from abc import abstractmethod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from performative._base.checks import check_finite, check_one_a_client, check_rule
from performative.facts import AbstractPart
from performative.participation.base import AbstractParticipation, Selection
from performative.types import Cohort, Memory, Numbers, Upload, number


class AbstractStaying(AbstractPart):
    """nu(loss): the probability that a person with that loss stays for the next round. Decreasing in the loss."""

    @abstractmethod
    def __call__(self, loss: Float[Array, "..."]) -> Float[Array, "..."]:
        """A number in [0, 1] for each loss."""

    def check(self, clients: int) -> None:
        """Raise if the parameters are for another number of clients."""


class Patience(AbstractStaying):
    """People stay until the loss is about `tolerance`.

        nu(loss) = most / (1 + exp(steepness (loss - tolerance)))

    `tolerance` is the loss at which half of those who could be kept leave; each is a number, or one per client.
    """

    references = ()

    tolerance: Numbers = number()
    steepness: Numbers = number(default=1.0)
    most: Numbers = number(default=1.0)

    def __check_init__(self) -> None:
        check_finite("Patience", tolerance=self.tolerance, steepness=self.steepness, most=self.most)
        check_rule("Patience", "must not be negative", steepness=self.steepness)
        check_rule("Patience", "must lie in [0, 1]", most=self.most)

    def check(self, clients: int) -> None:
        check_one_a_client("Patience: ", clients, tolerance=self.tolerance, steepness=self.steepness, most=self.most)

    def __call__(self, loss: Float[Array, "..."]) -> Float[Array, "..."]:
        # The hyperbolic tangent cannot overflow.
        return self.most * (1 - jnp.tanh(self.steepness * (loss - self.tolerance) / 2)) / 2


class Retention(AbstractParticipation[tuple[Memory, Array]]):
    """The cohort of `inner`, weighted by the fraction of each client's people that are left.

        left_i <- nu(loss_i - pay_i) left_i + join_i,      a_i = (a_i of inner) left_i / sum_j p_j left_j

    loss_i is the mean loss of the client's batches in a round in which it takes part; the people of absent clients see
    nothing new, and stay. With an unbiased `inner` the update is unbiased for the risk of those who are left. There can
    be several fixed points; the start determines which one is reached: `pf.theory.TwoGroups`. Hashimoto et al. 2018.
    Record(clients=("left",)) shows who is left.

    Args:
        stay: nu, such as Patience(tolerance): a number in [0, 1] that falls as the loss grows
        join: newcomers per round, as a fraction of the client's initial people
        start: left_i at the start
        pay: what people are paid per round to stay, in units of the loss
        since: the round in which a client joins with its `start`; before, it does not take part
        quits: a client with less than this fraction of its people left drops out for good

    All but `stay` are numbers, or one per client. If nobody is left the model does not change. Costs O(N) per round.
    """

    references = ("hashimoto2018fairness",)
    sums_to_one = False
    sums_to_one_if_equal = False

    inner: AbstractParticipation[Memory]
    stay: AbstractStaying
    join: Numbers = number(default=0.0)
    start: Numbers = number(default=1.0)
    pay: Numbers = number(default=0.0)
    since: Numbers = number(default=0.0)
    quits: Numbers = number(default=0.0)

    def __check_init__(self) -> None:
        inner = self.inner
        if not isinstance(inner, AbstractParticipation):
            raise ValueError(f"Retention: inner must be a participation such as pf.Full(); got {inner!r}.")
        if inner.without_work() is not inner:
            raise ValueError(
                f"Retention: inner is {type(inner).__name__}, which sets local steps; put it outside: "
                "pf.LocalWork(pf.participation.Retention(...), steps)."
            )
        if inner.keeps_time:
            raise ValueError(
                f"Retention: inner is {type(inner).__name__}, whose clients may leave while training; use "
                "synchronous rounds, such as pf.SchemeTwo(k)."
            )
        if inner.first_k is not None:
            raise ValueError(
                f"Retention: inner is {type(inner).__name__}, whose weights are known only after the first answers; "
                "use one that selects its cohort, such as pf.SchemeTwo(k)."
            )
        if not isinstance(self.stay, AbstractStaying):
            raise ValueError(f"Retention: stay must be a part such as Patience(tolerance=1.0); got {self.stay!r}.")
        numbers = self._numbers()
        check_finite("Retention", **numbers)
        for name in ("join", "start", "since", "quits"):
            check_rule("Retention", "must not be negative", **{name: numbers[name]})

    @property
    def requires_loss(self) -> bool:
        return True

    @property
    def measures_losses(self) -> bool:
        return self.inner.measures_losses

    def size(self, clients: int) -> int:
        return self.inner.size(clients)

    def tables(self, weights: np.ndarray) -> PyTree:
        return self.inner.tables(weights)

    def check(self, weights: np.ndarray) -> None:
        self.inner.check(weights)
        check_one_a_client("Retention: ", len(weights), **self._numbers())
        self.stay.check(len(weights))

    def init(self, clients: int) -> tuple[Memory, Float[Array, " N"]]:
        return self.inner.init(clients), jnp.where(self._each(self.since, clients) <= 0, self.start, 0)

    def remembered(self, memory: tuple[Memory, Float[Array, " N"]]) -> dict[str, Float[Array, " N"]]:
        return self.inner.remembered(memory[0]) | {"left": memory[1]}

    def select(
        self, key: PRNGKeyArray, selection: Selection, memory: tuple[Memory, Float[Array, " N"]]
    ) -> tuple[Cohort, tuple[Memory, Float[Array, " N"]]]:
        p, clients = selection.weights, selection.weights.shape[0]
        cohort, inside = self.inner.select(key, selection, memory[0])
        since, now = self._each(self.since, clients), selection.round.astype(p.dtype)
        left = jnp.where(now == jnp.ceil(since), self.start, memory[1])
        here = (now >= since) & (left >= self.quits)
        counts = jnp.where(here, left, 0).astype(p.dtype)
        total = jnp.sum(p * counts)
        share = counts / jnp.where(total > 0, total, 1)
        active = cohort.present & jnp.take(here, cohort.ids, mode="clip")
        weight = jnp.where(active, cohort.weight * jnp.take(share, cohort.ids, mode="clip"), 0)
        ids = jnp.where(active, cohort.ids, clients).astype(jnp.int32)
        return dataclasses.replace(cohort, ids=ids, weight=weight, active=active), (inside, left)

    def observe(
        self, cohort: Cohort, upload: Upload, memory: tuple[Memory, Float[Array, " N"]]
    ) -> tuple[Memory, Float[Array, " N"]]:
        inside, left = memory
        clients = left.shape[0]
        assert upload.loss is not None
        heard = cohort.present & jnp.isfinite(upload.loss)
        # One row per client: each may have its own curve.
        saw = jnp.zeros_like(left).at[cohort.ids].set(jnp.where(heard, upload.loss, 0).astype(left.dtype), mode="drop")
        asked = jnp.zeros((clients,), bool).at[cohort.ids].set(heard, mode="drop")
        chance = jnp.clip(self.stay(saw - self._each(self.pay, clients)), 0, 1)
        return self.inner.observe(cohort, upload, inside), jnp.where(asked, chance * left + self.join, left)

    def _numbers(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("join", "start", "pay", "since", "quits")}

    @staticmethod
    def _each(value: Any, clients: int) -> Array:
        return jnp.broadcast_to(jnp.asarray(value, jnp.result_type(float)), (clients,))

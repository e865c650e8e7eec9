"""Clients that do different numbers of local steps."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from performative.facts import AbstractPart, declared
from performative.participation.base import AbstractParticipation, Selection
from performative.types import Cohort, Memory, Upload, as_numbers, is_concrete, whole


class UniformSteps(AbstractPart):
    """tau_i uniform on lo..hi, drawn anew each round."""

    references = ()
    ignores_data = True

    lo: int = whole()
    hi: int = whole()

    def __check_init__(self) -> None:
        if not (isinstance(self.lo, int) and isinstance(self.hi, int) and 1 <= self.lo <= self.hi):
            raise ValueError(f"UniformSteps needs whole numbers 1 <= lo <= hi; got lo={self.lo!r}, hi={self.hi!r}.")


class AdaComm(AbstractPart):
    """Fewer local steps as the loss falls: fast at first, close to the others' models in the end.

        tau_t = ceil(sqrt(F(theta_t) / F(theta_0)) * first),      least <= tau_t <= first

    F is the mean loss that the clients of a round report, weighed by a_i; round t goes by the report of the round
    before. Where the loss grows (data that react can make it), tau stays at `first`. It needs a loss that is positive
    at the start; else tau is `first` throughout. A round without a finite report changes nothing.
    Wang and Joshi, SysML 2019. Differs from the paper: the loss is looked at each round, not once in a span of time.
    """

    references = ("wang2019adaptive",)

    first: int = whole()
    least: int = whole(default=1)

    def __check_init__(self) -> None:
        if not (isinstance(self.first, int) and isinstance(self.least, int) and 1 <= self.least <= self.first):
            raise ValueError(
                f"AdaComm needs whole numbers 1 <= least <= first; got first={self.first!r}, least={self.least!r}."
            )

    def init(self) -> Memory:
        """The loss at the start and the last one; NaN until there is a report."""
        return jnp.full((2,), jnp.nan, jnp.result_type(float))

    def steps(self, memory: Memory) -> Int[Array, ""]:
        """tau of the round to come."""
        start, last = memory
        known = (start > 0) & jnp.isfinite(last)
        ratio = jnp.where(known, jnp.maximum(last, 0) / jnp.where(known, start, 1), 1)
        return jnp.clip(jnp.ceil(jnp.sqrt(ratio) * self.first), self.least, self.first).astype(jnp.int32)

    def observe(self, cohort: Cohort, upload: Upload, memory: Memory) -> Memory:
        """The losses at the start and now, after one more report."""
        assert upload.loss is not None
        loss = upload.loss.astype(memory.dtype)
        heard = jnp.isfinite(loss) if cohort.active is None else cohort.active & jnp.isfinite(loss)
        weight = jnp.where(heard, cohort.weight.astype(memory.dtype), 0)
        total = jnp.sum(weight)
        mean = jnp.sum(weight * jnp.where(heard, loss, 0)) / jnp.where(total > 0, total, 1)
        now = jnp.stack([jnp.where(jnp.isnan(memory[0]), mean, memory[0]), mean])
        return jnp.where(total > 0, now, memory)


def _as_steps(steps: Any) -> Any:
    """tau_i as int32, or the rule. Fractions and numbers below 1 are refused, not rounded."""
    if isinstance(steps, (UniformSteps, AdaComm)):
        return steps
    given = np.asarray(as_numbers(steps))
    if given.ndim != 1 or given.size == 0 or given.dtype.kind != "f" or np.any((given < 1) | (given % 1 != 0)):
        raise ValueError(
            "LocalWork: steps must be one whole number >= 1 for each client, pf.participation.UniformSteps(lo, hi) or "
            f"pf.participation.AdaComm(first); got {steps!r}."
        )
    return given.astype(np.int32)


class LocalWork(AbstractParticipation):
    """The cohort of `inner`, with tau_i local steps for client i.

    `steps` is a list tau_i (one a client), `UniformSteps(lo, hi)`, or `AdaComm(first)`, one tau for all that follows
    the loss. It sets E, the largest tau_i, so the recipe's `local_steps` is left at its default. The clock still
    counts t = round * E + e.
    """

    references = ()
    ignores_data = True

    inner: AbstractParticipation
    steps: Any
    longest: int = eqx.field(static=True)

    def __init__(self, inner: AbstractParticipation, steps: Any):
        if not isinstance(inner, AbstractParticipation):
            raise ValueError(f"LocalWork: inner must say who takes part, such as pf.Full(); got {inner!r}.")
        if isinstance(inner, LocalWork):
            raise ValueError("LocalWork inside LocalWork: the inner steps would not count; give one list of steps.")
        self.inner = inner
        self.steps = _as_steps(steps)
        if isinstance(self.steps, UniformSteps):
            self.longest = self.steps.hi
        else:
            self.longest = self.steps.first if isinstance(self.steps, AdaComm) else int(self.steps.max())

    def size(self, clients: int) -> int:
        return self.inner.size(clients)

    def sampling(self, clients: int) -> Any:
        return declared(self.inner, "sampling", clients)

    def without_work(self) -> AbstractParticipation:
        return self.inner

    def steps_of(self, clients: int, default: int) -> np.ndarray | None:
        return None if isinstance(self.steps, AbstractPart) else np.asarray(self.steps)

    def local_steps(self, default: int) -> int:
        if default not in (1, self.longest):
            raise ValueError(
                f"local_steps={default} contradicts LocalWork, whose largest tau_i is {self.longest}; "
                "leave local_steps out."
            )
        return self.longest

    @property
    def everyone(self) -> bool:
        return self.inner.everyone

    @property
    def unequal_work(self) -> bool:
        listed = not isinstance(self.steps, (UniformSteps, AdaComm))
        return listed and is_concrete(self.steps) and len(np.unique(self.steps)) > 1

    @property
    def measures_losses(self) -> bool:
        return self.inner.measures_losses

    @property
    def race(self) -> int | None:
        return self.inner.race

    def before_race(self) -> AbstractParticipation:
        return LocalWork(self.inner.before_race(), self.steps)

    @property
    def sums_to_one_if_equal(self) -> bool:
        return self.inner.sums_to_one_if_equal

    @property
    def sums_to_one(self) -> bool:
        return self.inner.sums_to_one

    @property
    def wants_loss(self) -> bool:
        return self.inner.wants_loss or isinstance(self.steps, AdaComm)

    def tables(self, weights: np.ndarray) -> Any:
        return self.inner.tables(weights)

    def init(self, clients: int) -> Memory:
        inner = self.inner.init(clients)
        return (inner, self.steps.init()) if isinstance(self.steps, AdaComm) else inner

    def check(self, weights: np.ndarray) -> None:
        self.inner.check(weights)
        if not isinstance(self.steps, (UniformSteps, AdaComm)) and len(self.steps) != len(weights):
            raise ValueError(
                f"LocalWork: steps has {len(self.steps)} entries for {len(weights)} clients; give one a client."
            )

    def select(self, key: Any, selection: Selection, memory: Memory) -> tuple[Cohort, Memory]:
        key_inner, key_steps = jax.random.split(key)
        inside = memory[0] if isinstance(self.steps, AdaComm) else memory
        cohort, inside = self.inner.select(key_inner, selection, inside)
        if isinstance(self.steps, AdaComm):
            steps = jnp.broadcast_to(self.steps.steps(memory[1]), cohort.ids.shape)
            memory = (inside, memory[1])
        elif isinstance(self.steps, UniformSteps):
            # Keyed by client, so that a client's work does not depend on who else was drawn.
            draw = jax.vmap(
                lambda i: jax.random.randint(
                    jax.random.fold_in(key_steps, i), (), self.steps.lo, self.steps.hi + 1, jnp.int32
                )
            )
            steps, memory = draw(cohort.ids), inside
        else:
            steps, memory = jnp.take(self.steps, cohort.ids, mode="clip"), inside
        return eqx.tree_at(lambda c: c.steps, cohort, steps, is_leaf=lambda leaf: leaf is None), memory

    def observe(self, cohort: Cohort, upload: Upload, memory: Memory) -> Memory:
        if isinstance(self.steps, AdaComm):
            return self.inner.observe(cohort, upload, memory[0]), self.steps.observe(cohort, upload, memory[1])
        return self.inner.observe(cohort, upload, memory)

"""Clients that do different numbers of local steps."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from performative.participation.base import AbstractParticipation, Selection
from performative.types import Cohort, Memory, Upload, whole


class UniformSteps(eqx.Module):
    """tau_i uniform on lo..hi, drawn anew each round."""

    lo: int = whole()
    hi: int = whole()

    def __check_init__(self) -> None:
        if not (isinstance(self.lo, int) and isinstance(self.hi, int) and 1 <= self.lo <= self.hi):
            raise ValueError(f"UniformSteps needs whole numbers 1 <= lo <= hi; got lo={self.lo!r}, hi={self.hi!r}.")


def _as_steps(steps: Any) -> Any:
    """tau_i as int32, or the distribution. Fractions and numbers below 1 are refused, not rounded."""
    if isinstance(steps, UniformSteps):
        return steps
    given = np.asarray(steps)
    if given.ndim != 1 or given.size == 0 or given.dtype.kind not in "iuf" or np.any((given < 1) | (given % 1 != 0)):
        raise ValueError(
            "LocalWork: steps must be one whole number >= 1 for each client, or pf.participation.UniformSteps(lo, hi); "
            f"got {steps!r}."
        )
    return given.astype(np.int32)


class LocalWork(AbstractParticipation):
    """The cohort of `inner`, with tau_i local steps for client i.

    `steps` is a list tau_i (one a client) or `UniformSteps(lo, hi)`. It sets E, the largest tau_i, so the recipe's
    `local_steps` is left at its default. The clock still counts t = round * E + e.
    """

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
        self.longest = self.steps.hi if isinstance(self.steps, UniformSteps) else int(self.steps.max())

    def size(self, clients: int) -> int:
        return self.inner.size(clients)

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
    def sums_to_one(self) -> bool:
        return self.inner.sums_to_one

    @property
    def wants_loss(self) -> bool:
        return self.inner.wants_loss

    def tables(self, weights: np.ndarray) -> Any:
        return self.inner.tables(weights)

    def init(self, clients: int) -> Memory:
        return self.inner.init(clients)

    def check(self, weights: np.ndarray) -> None:
        self.inner.check(weights)
        if not isinstance(self.steps, UniformSteps) and len(self.steps) != len(weights):
            raise ValueError(
                f"LocalWork: steps has {len(self.steps)} entries for {len(weights)} clients; give one a client."
            )

    def select(self, key: Any, selection: Selection, memory: Memory) -> tuple[Cohort, Memory]:
        key_inner, key_steps = jax.random.split(key)
        cohort, memory = self.inner.select(key_inner, selection, memory)
        if isinstance(self.steps, UniformSteps):
            # Keyed by client, so that a client's work does not depend on who else was drawn.
            draw = jax.vmap(
                lambda i: jax.random.randint(
                    jax.random.fold_in(key_steps, i), (), self.steps.lo, self.steps.hi + 1, jnp.int32
                )
            )
            steps = draw(cohort.ids)
        else:
            steps = jnp.take(self.steps, cohort.ids, mode="clip")
        return eqx.tree_at(lambda c: c.steps, cohort, steps, is_leaf=lambda leaf: leaf is None), memory

    def observe(self, cohort: Cohort, upload: Upload, memory: Memory) -> Memory:
        return self.inner.observe(cohort, upload, memory)

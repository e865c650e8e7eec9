"""A server step that grows when clients pull in different directions."""

from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from performative._base.checks import check_number, given
from performative.aggregators.base import AbstractAggregator, AbstractWrapper
from performative.aggregators.mean import Mean, weighted_sum
from performative.types import Cohort, Numbers, Theta, Unchecked, Upload, is_concrete, number, squared_norm


class History(Protocol):
    """What `mean_of_last_two` reads from a run; `performative.History` has it."""

    rounds: np.ndarray
    theta: PyTree


class Extrapolate(AbstractWrapper[PyTree]):
    """FedExP: `inner`'s move, times a server step size computed from the updates.

        eta_g = max(1, sum_k w_k |delta_k|^2 / (2 (|sum_k w_k delta_k|^2 + eps))),      at most `cap`

    w_k are the normalized weights of the round (1/m in the paper). The mean in the denominator is that of the updates,
    whatever `inner` does with them.

    Args:
        cap: the largest eta_g, >= 1. None as in the paper. Even then eta_g <= mean |delta|^2 / (2 eps), and an
            extrapolated move is no longer than mean |delta|^2 / (4 sqrt(eps)). If |delta| grows with theta, as it can
            under performative shift, that is no bound: set a cap.

    Near a point where heterogeneous clients balance, eta_g is large and the model jumps around it. The paper therefore
    returns the mean of the last two models. That is not a move (the next round starts from the last model): see
    `mean_of_last_two`. Jhunjhunwala et al. 2023. Differs from Joshi's slides, which print one
    client's update in the denominator.
    """

    references = ("jhunjhunwala2023fedexp",)
    ignores_data = True

    inner: AbstractAggregator = Mean()
    cap: Numbers | None = number(default=None)
    eps: Numbers = number(default=1e-3)

    def __check_init__(self) -> None:
        check_number("Extrapolate", **given(cap=self.cap), eps=self.eps)
        if self.cap is not None and is_concrete(self.cap) and not self.cap >= 1:
            raise ValueError(f"Extrapolate: cap must be >= 1, as eta_g is, or None for no cap; got {self.cap}.")
        if is_concrete(self.eps) and not self.eps > 0:
            raise ValueError(f"Extrapolate: eps must be above 0; got {self.eps}.")

    def init(self, theta: Theta, clients: int, extra: dict[str, PyTree]) -> PyTree:
        return self.inner.init(theta, clients, extra)

    def inside(self, memory: PyTree) -> PyTree:
        return memory

    def aggregate(
        self, theta: Theta, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: PyTree
    ) -> tuple[Theta, PyTree]:
        move, memory = self.inner.aggregate(theta, upload, cohort, weights, memory)
        step = self.server_step(upload, cohort)
        return jax.tree.map(lambda leaf: step.astype(leaf.dtype) * leaf, move), memory

    def server_step(self, upload: Upload, cohort: Cohort) -> Float[Array, ""]:
        """eta_g of one round."""
        total = jnp.sum(cohort.weight)
        share = cohort.weight / jnp.where(total > 0, total, 1)
        mean = weighted_sum(upload.delta, share, cohort.active)
        spread = weighted_sum(jax.vmap(squared_norm)(upload.delta), share, cohort.active)
        least = jnp.asarray(self.eps).astype(spread.dtype)
        step = jnp.maximum(1, spread / (2 * (squared_norm(mean) + least)))
        return step if self.cap is None else jnp.minimum(step, jnp.asarray(self.cap).astype(step.dtype))

    def levels(self, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: PyTree) -> dict[str, Array]:
        return {"server_step": self.server_step(upload, cohort), **super().levels(upload, cohort, weights, memory)}


def mean_of_last_two(history: Unchecked[History]) -> PyTree:
    """(theta_T + theta_{T-1}) / 2 of each repeat: the model that FedExP returns, [repeats, ...] per leaf.

    It needs a history that recorded the last two rounds.
    """
    if not (hasattr(history, "rounds") and hasattr(history, "theta")):
        raise ValueError(f"mean_of_last_two: history must be a History, as pf.run returns it; got {history!r}.")
    rounds = np.asarray(history.rounds)
    if len(rounds) < 2 or rounds[-1] - rounds[-2] != 1:
        raise ValueError(
            f"mean_of_last_two needs the models of the last two rounds; the last recorded rounds are "
            f'{rounds[-3:].tolist()}. Run with pf.Record(theta="all").'
        )
    return jax.tree.map(lambda leaf: (np.asarray(leaf)[:, -1] + np.asarray(leaf)[:, -2]) / 2, history.theta)

"""Servers that give more weight to clients with high loss."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from performative._base.checks import check_number, check_rule, given
from performative.aggregators.base import AbstractAggregator
from performative.aggregators.mean import weighted_sum
from performative.types import Cohort, Numbers, Theta, Upload, number, squared_norm


def _check_losses(owner: str, extra: dict[str, PyTree]) -> None:
    if "loss" not in extra:
        raise ValueError(
            f"{owner} weights clients by their losses; use it with the estimator "
            "pf.estimators.WithLoss(pf.estimators.Minibatch())."
        )


class QFair(AbstractAggregator[None]):
    """q-FedAvg: clients are weighted by a power of their loss, and the step shrinks with the curvature of that weight.

        move = sum_k a_k F_k^q delta_k / sum_k a_k (F_k^q + q F_k^(q-1) L_k |delta_k|^2)

    It decreases sum_i p_i F_i^(q+1) / (q+1) on the current data: q = 0 is the mean, a large q approaches the minimax
    loss. L_k = 1 / `Upload.effective_step`, the curvature that the rate allows; for one plain step it is the paper's
    1/eta. Losses must not be negative: a negative loss counts as 0. It needs the estimator `WithLoss`. Li, Sanjabi,
    Beirami and Smith 2020, Algorithm 2.

    Args:
        q: strength of fairness, >= 0
        lipschitz: L for all clients, instead of L_k

    Example:

        import performative as pf

        print(pf.aggregators.QFair(q=2.0))
    """

    references = ("li2020fair",)
    ignores_data = True

    q: Numbers = number()
    lipschitz: Numbers | None = number(default=None)

    def __check_init__(self) -> None:
        check_number("QFair", q=self.q, **given(lipschitz=self.lipschitz))
        check_rule("QFair", "must not be negative", q=self.q)
        check_rule("QFair", "must be above 0", lipschitz=self.lipschitz)

    def init(self, theta: Theta, clients: int, extra: dict[str, PyTree]) -> None:
        _check_losses("QFair", extra)

    def aggregate(
        self, theta: Theta, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: None
    ) -> tuple[Theta, None]:
        loss = jnp.where(cohort.present, upload.extra["loss"], 0)
        loss, q = jnp.maximum(loss, jnp.finfo(loss.dtype).tiny), jnp.asarray(self.q, loss.dtype)
        if self.lipschitz is not None:
            bend: Any = jnp.asarray(self.lipschitz, loss.dtype)
        elif upload.effective_step is None:
            raise ValueError(
                "QFair needs uploads with the length of their steps (Upload.effective_step), or lipschitz."
            )
        else:
            reach = jnp.where(cohort.present, upload.effective_step, 1).astype(loss.dtype)
            bend = jnp.where(reach > 0, 1 / jnp.where(reach > 0, reach, 1), 0)
        share = loss**q
        length = jax.vmap(squared_norm)(upload.delta).astype(loss.dtype)
        below = share + q * share / loss * bend * jnp.where(cohort.present, length, 0)
        total = weighted_sum(below, cohort.weight, cohort.active)
        weight = cohort.weight.astype(loss.dtype) * share / jnp.where(total > 0, total, 1)
        return weighted_sum(upload.delta, weight, cohort.active), memory


class Agnostic(AbstractAggregator[Float[Array, " N"]]):
    """AFL: client weights lambda ascend on the losses while the model descends.

        move = sum_k (a_k / p_k) lambda_k delta_k,      lambda = P_simplex(p + step sum of F so far)

    A saddle point of sum_i lambda_i F_i on the current data: it converges to the minimax loss, whatever p is. An absent
    client adds no loss. The server keeps the sum of each client's losses, and a round costs N log N. It needs the
    estimator `WithLoss`. Mohri, Sivek and Suresh 2019. Differs from the paper: the sum is projected, not the last
    lambda; inside the simplex it is the same, and absent clients are unaffected. Over very long runs the sum loses
    digits: use dtype="float64" if that matters.

    Args:
        step: step size of lambda

    Example:

        import performative as pf

        print(pf.aggregators.Agnostic(step=0.1))
    """

    references = ("mohri2019agnostic",)
    ignores_data = True

    step: Numbers = number()

    def __check_init__(self) -> None:
        check_number("Agnostic", step=self.step)
        check_rule("Agnostic", "must not be negative", step=self.step)

    def init(self, theta: Theta, clients: int, extra: dict[str, PyTree]) -> Float[Array, " N"]:
        _check_losses("Agnostic", extra)
        return jnp.zeros((clients,), jnp.result_type(float))

    def aggregate(
        self, theta: Theta, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: Float[Array, " N"]
    ) -> tuple[Theta, Float[Array, " N"]]:
        p = weights.astype(memory.dtype)
        fair = self._fair(p, memory)
        mine, asked = (jnp.take(one, cohort.ids, mode="clip") for one in (fair, p))
        factor = jnp.where(asked > 0, mine / jnp.where(asked > 0, asked, 1), 0).astype(cohort.weight.dtype)
        move = weighted_sum(upload.delta, cohort.weight * factor, cohort.active)
        loss = jnp.where(cohort.present, upload.extra["loss"], 0).astype(memory.dtype)
        ids = jnp.where(cohort.present, cohort.ids, weights.shape[0])
        return move, memory.at[ids].add(loss, mode="drop")

    def _fair(self, p: Float[Array, " N"], memory: Float[Array, " N"]) -> Float[Array, " N"]:
        """lambda."""
        return project_simplex(p + jnp.asarray(self.step, p.dtype) * memory)

    def levels(
        self, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: Float[Array, " N"]
    ) -> dict[str, Array]:
        return {"largest_weight": jnp.max(self._fair(weights.astype(memory.dtype), memory))}


def project_simplex(v: Float[Array, " N"]) -> Float[Array, " N"]:
    """The Euclidean projection onto the simplex: max(v - c, 0), with the unique c such that it sums to one."""
    down = jnp.flip(jnp.sort(v))
    count = jnp.arange(1, v.shape[0] + 1).astype(v.dtype)
    excess = (jnp.cumsum(down) - 1) / count
    last = jnp.sum(down > excess) - 1
    return jnp.maximum(v - excess[last], 0)

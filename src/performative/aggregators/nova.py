"""Correction for unequal work: clients are weighted by their gradients, not by their number of steps."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from performative._base.checks import is_one_of
from performative._base.client_axis import put_rows, take_rows
from performative.aggregators.base import AbstractAggregator, AbstractWrapper
from performative.aggregators.mean import Mean
from performative.facts import declared
from performative.types import Cohort, Theta, Upload


class NovaMemory(eqx.Module):
    """Each client's last reach [N] (0: unseen), sum_i p_i reach_i, total p_i of those seen, and `inner`'s memory."""

    last: Float[Array, " N"]
    total: Float[Array, ""]
    seen: Float[Array, ""]
    inner: PyTree


class Nova(AbstractWrapper[PyTree]):
    """FedNova: divide each update by the reach of its local steps, multiply all by the mean reach; then `inner`.

        delta_k -> delta_k r / r_k,      r = sum_i p_i r_i,      r_k = `Upload.effective_step`

    For plain steps of constant size r_k = eta tau_k, and the move is tau_eff sum_k a_k delta_k / tau_k with tau_eff =
    sum_i p_i tau_i. Prox, momentum and other local solvers declare their reach through `step_response`. Wang et al.
    2020, Eq. (7); it removes the bias of unequal work, not that of heterogeneous clients, which vanishes with the rate:
    see `Scaffold`. A projection onto a domain is not accounted for.

    Args:
        over: "clients" averages r over all clients seen so far, each with its last reach: once all have been seen, r
            does not depend on who was drawn. "cohort" is the form in the paper, r = sum_k a_k r_k / sum_k a_k over the
            round's cohort: the same under full participation, but with few clients per round it reduces to FedAvg (with
            one, exactly).

    The server keeps one number per client; a round still costs K. A channel with error feedback keeps its error in
    units of whole updates: if a client's number of steps varies between rounds, it is incompatible with `Nova`, and the
    fixed point is biased, whatever the rate.
    """

    references = ("wang2020tackling",)
    ignores_data = True
    evens_work = True

    inner: AbstractAggregator = Mean()
    over: str = eqx.field(static=True, default="clients")

    def __check_init__(self) -> None:
        if not is_one_of(self.over, "clients", "cohort"):
            raise ValueError(f'Nova: over must be "clients" or "cohort"; got {self.over!r}.')

    def init(self, theta: Theta, clients: int, extra: dict[str, PyTree]) -> PyTree:
        inside = self.inner.init(theta, clients, extra)
        if self.over == "cohort":
            return inside
        dtype = jnp.result_type(float)
        return NovaMemory(jnp.zeros(clients, dtype), jnp.zeros((), dtype), jnp.zeros((), dtype), inside)

    def inside(self, memory: PyTree) -> PyTree:
        return memory if self.over == "cohort" else memory.inner

    def aggregate(
        self, theta: Theta, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: PyTree
    ) -> tuple[Theta, PyTree]:
        evened, seen = self._even(upload, cohort, weights, memory)
        move, inside = self.inner.aggregate(theta, evened, cohort, weights, self.inside(memory))
        return move, (inside if seen is None else NovaMemory(*seen, inside))

    def needs_sums_only(self) -> bool:
        return bool(declared(self.inner, "needs_sums_only"))

    def sum_weights(
        self, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: PyTree
    ) -> Float[Array, " K"]:
        """c_k / r_k with `inner`'s c_k: r is a common factor, which the server applies afterwards. A client that made
        no step has no update either."""
        reach, _, _ = self._reach(upload, cohort, weights, memory)
        inner = self.inner.sum_weights(upload, cohort, weights, self.inside(memory))
        return inner / jnp.where(reach == 0, 1, reach).astype(inner.dtype)

    def aggregate_sum(
        self, theta: Theta, total: Theta, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: PyTree
    ) -> tuple[Theta, PyTree]:
        _, middle, seen = self._reach(upload, cohort, weights, memory)
        evened = jax.tree.map(lambda leaf: leaf * middle.astype(leaf.dtype), total)
        move, inside = self.inner.aggregate_sum(theta, evened, upload, cohort, weights, self.inside(memory))
        return move, (inside if seen is None else NovaMemory(*seen, inside))

    def _reach(
        self, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: PyTree
    ) -> tuple[Array, Array, tuple[Array, Array, Array] | None]:
        """r_k, r, and the known reaches after the round."""
        if upload.effective_step is None:
            raise ValueError("Nova needs uploads with the reach of their local steps (Upload.effective_step).")
        reach: Array = jnp.where(cohort.present, upload.effective_step, 0)
        if self.over == "cohort":
            total = jnp.sum(cohort.weight.astype(reach.dtype) * reach)
            middle, known = _ratio(total, jnp.sum(cohort.weight).astype(reach.dtype)), None
        else:
            share = jnp.where(cohort.present, jnp.take(weights, cohort.ids, mode="clip"), 0).astype(memory.last.dtype)
            reach = reach.astype(memory.last.dtype)
            before = take_rows(memory.last, cohort.ids)
            total = memory.total + jnp.sum(share * (reach - before))
            seen = memory.seen + jnp.sum(jnp.where((before == 0) & (reach != 0), share, 0))
            middle = _ratio(total, seen)
            # If everyone computes, absent clients have rows too, but these were never sent.
            known = put_rows(memory.last, jnp.where(cohort.present, cohort.ids, weights.shape[0]), reach), total, seen
        return reach, middle, known

    def _even(
        self, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: PyTree
    ) -> tuple[Upload, tuple[Array, Array, Array] | None]:
        """The updates rescaled to equal reach; and the known reaches after the round."""
        reach, middle, known = self._reach(upload, cohort, weights, memory)
        factor = jnp.where(reach == 0, 1, _ratio(middle, reach))

        def even(delta: Array) -> Array:
            return delta * factor.reshape((-1,) + (1,) * (delta.ndim - 1)).astype(delta.dtype)

        return eqx.tree_at(lambda u: u.delta, upload, jax.tree.map(even, upload.delta)), known

    def levels(self, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: PyTree) -> dict[str, Array]:
        evened, _ = self._even(upload, cohort, weights, memory)
        return super().levels(evened, cohort, weights, memory)


def _ratio(above: Array, below: Array) -> Array:
    """above / below, 0 if below is 0."""
    return jnp.where(below == 0, 0, above / jnp.where(below == 0, 1, below))

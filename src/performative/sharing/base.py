"""The sharing slot: who shares a model with whom."""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from performative.facts import AbstractPart
from performative.types import Cohort, Loss, Theta

# The mean loss of a model on a client's current data.
Measure = Callable[[Theta], Array]


class Tally(eqx.Module):
    """What the server remembers about the entries of what it keeps.

    Args:
        trained: how often each was trained, clients times rounds
        carried: the total weight p_i of all clients that ever train it; None if not needed
    """

    trained: PyTree
    carried: PyTree = None


class AbstractSharing(AbstractPart):
    """Which model a client trains, and which one its people see.

    The server keeps `shared`, a client keeps `own`; in a round it trains `local`, a tree made of both:

        local <- local - eta grad loss(local; z),   z ~ D_i(meet(local)),   then `pull`

    By default there is one model for all.

    Args:
        is_one: whether there is a single model, which the server keeps and everybody trains and sees
        has_shared: whether what the server keeps is one model that everybody could use
        trains_one: whether a client trains one model, the one that its people see
        counts_entries: whether clients train different entries of what the server keeps, which `balance` then weights
    """

    is_one: ClassVar[bool] = False
    has_shared: ClassVar[bool] = True
    trains_one: ClassVar[bool] = True
    counts_entries: ClassVar[bool] = False

    def start(self, theta: Theta) -> PyTree:
        """What the server keeps at the start, when theta is the first model."""
        return theta

    def one(self, shared: PyTree) -> Theta:
        """One of the models that the server keeps."""
        return shared

    def of(self, shared: PyTree, client: Int[Array, ""] | None, round: Int[Array, ""]) -> "AbstractSharing":
        """The sharing as it applies to this client in this round."""
        return self

    def keep(self, theta: Theta) -> PyTree:
        """What a client keeps for itself at the start; None if it keeps nothing."""
        return None

    def choose(self, shared: PyTree, own: PyTree, client: Int[Array, ""] | None, measure: Measure) -> PyTree:
        """`own` at the start of a round, before the client trains."""
        return own

    def local(self, shared: PyTree, own: PyTree, client: Int[Array, ""] | None) -> PyTree:
        """What the client trains."""
        return shared

    def meet(self, local: PyTree) -> Theta:
        """The model that its people see."""
        return local

    def models(self, shared: PyTree, own: PyTree, clients: Int[Array, " N"]) -> PyTree:
        """All models that people see, [players, ...]; `own` is that of all clients. By default one per client."""
        return jax.vmap(lambda mine, client: self.meet(self.local(shared, mine, client)))(own, clients)

    def player(self, client: Int[Array, ""]) -> Int[Array, ""]:
        """Which of them the client's people see."""
        return client

    def loss(self, loss: Loss) -> Loss:
        """l(local; z), from the loss of one model."""
        return loss

    def pull(self, local: PyTree, shared: PyTree, rate: Array) -> PyTree:
        """Adjust `local` after each step of size `rate`."""
        return local

    def each(self, function: Callable[[Theta], Theta], local: PyTree) -> PyTree:
        """Apply a function of one model, such as a projection, to each model that the client trains."""
        return function(local)

    def each_shared(self, function: Callable[[Theta], Theta], shared: PyTree) -> PyTree:
        """The same for each model that the server keeps."""
        return function(shared)

    def send(self, moved: PyTree, shared: PyTree, own: PyTree, client: Int[Array, ""] | None) -> PyTree:
        """What the client adds to `shared`, if training moved `local` by `moved`."""
        return moved

    def tally(self, shared: PyTree, weights: Float[Array, " N"]) -> "Tally | None":
        """Counters of how often each entry was trained; None if all entries always are."""
        return None

    def balance(
        self, sent: PyTree, shared: PyTree, cohort: Cohort, round: Int[Array, ""], tally: "Tally | None"
    ) -> PyTree:
        """Rescale what clients sent [K, ...] so that the sum with the cohort's weights is the move."""
        return sent

    def tallied(self, tally: "Tally | None", shared: PyTree, cohort: Cohort, round: Int[Array, ""]) -> "Tally | None":
        """The counts after a round."""
        return tally

    def kept(self, local: PyTree, own: PyTree) -> PyTree:
        """What the client keeps for itself after a round."""
        return own

    def ready(self, weights: np.ndarray) -> "AbstractSharing":
        """The sharing for clients of these weights p_i; raises if unsupported. Called once, before a run."""
        return self

    def check(self, theta: Theta) -> None:
        """Raise if the model is unsupported; called once, before a run."""


class OneModel(AbstractSharing):
    """One model for all (the default)."""

    references = ()
    ignores_data = True
    is_plain = True
    is_one = True


def blank_local(sharing: AbstractSharing, shared: PyTree) -> Any:
    """A tree of the shape of what a client trains."""
    own = sharing.keep(sharing.one(shared))
    return sharing.local(shared, own, jnp.zeros((), jnp.int32))

"""The estimator slot: what direction a client computes from a batch."""

from abc import abstractmethod
from typing import ClassVar, Generic, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from performative._base.forwarding import hands_on
from performative.batches import AbstractBatch
from performative.facts import AbstractPart, Bound, Uncertified, declared
from performative.populations.base import AbstractPopulation
from performative.types import Batch, Estimate, Local, Loss, Memory, Noise, Theta, Upload


@runtime_checkable
class Problem(Protocol):
    """What estimators read from a `pf.Problem`, which consists of parts and so cannot be imported here."""

    @property
    def loss(self) -> Loss: ...

    @property
    def population(self) -> AbstractPopulation: ...

    @property
    def clients(self) -> int: ...

    @property
    def client_weights(self) -> Float[Array, " N"] | np.ndarray: ...


class AbstractEstimator(AbstractPart, Generic[Memory]):
    """A direction v such that the client steps to theta - eta v. The client keeps the memory.

    `draw` draws the randomness for all steps of a round in advance; `estimate` receives it step by step.
    """

    sends_update_only: ClassVar[bool] = False
    """Whether clients send nothing but the update."""

    learns_reaction: ClassVar[bool] = False
    """Whether its direction includes people's reaction to the model that the client trains."""

    keeps_samples: ClassVar[bool] = False
    """Whether clients remember samples of past rounds."""

    needs_exploration: ClassVar[bool] = False
    """Whether it learns from models that are deployed alongside the global one (`pf.Explore`)."""

    def bound(self) -> Bound | None:
        """The bound on one person's contribution to a batch's gradient sum, with its noise; None if there is none."""
        return None

    @property
    def grid_noise(self) -> bool:
        """Whether it draws noise that may be integers on a grid (`performative._base.noise`)."""
        return False

    def init(self, theta: Theta, population: AbstractPopulation, loss: Loss) -> Memory:
        """The memory of one client at the start; None if nothing is remembered."""
        return None  # type: ignore[return-value]  # Memory is None if nothing is remembered

    def draw(self, key: PRNGKeyArray, steps: int, theta: Theta) -> Noise:
        """Randomness with leading axis `steps`; None if none is needed, which costs nothing."""
        return None

    def quadrature(self, theta: Theta) -> tuple[Noise, Float[Array, " n"]] | None:
        """A quadrature rule for one step of `draw`: nodes with a leading axis n (and no axis of steps), and weights.

        It is exact for expectations of functions that are quadratic in the draws. None if unknown.
        """
        return None

    @abstractmethod
    def estimate(self, noise: Noise, theta: Theta, batch: Batch, local: Local, memory: Memory) -> Estimate[Memory]:
        """The direction at the local model theta."""

    def finish(self, upload: Upload, local: Local, memory: Memory) -> tuple[dict[str, PyTree], Memory]:
        """What the client adds to its upload after the last step of a round, by name, and its memory."""
        return {}, memory

    def unit_start(self) -> PyTree:
        """The memory of `step_response` at the start of a round."""
        return ()

    def step_response(self, gone: Array, carry: PyTree) -> tuple[Array, PyTree]:
        """The direction that this rule returns for a gradient of 1, `gone` steps into the round; 1 by default.

        It determines the effective length of a round's local steps (`Upload.effective_step`), to correct for unequal
        work.
        """
        return jnp.ones_like(gone), carry

    def check(self, problem: Problem, theta: Theta, batch: AbstractBatch) -> None:
        """Raise or warn if this rule does not work here; called once, before a run."""

    def check_point(self, problem: Problem, stable: Theta) -> None:
        """Warn if this rule cannot converge to the stable point; called before a run if that point is known."""

    def review(self, memory: Memory) -> list[str]:
        """Notes on the clients' final memories."""
        return []


def bound_of(estimator: AbstractEstimator) -> Bound:
    """The `bound` that an estimator's own class declares, for a wrapper that reads no other data."""
    found = declared(estimator, "bound")
    if found is None:
        raise Uncertified(f"the estimator {type(estimator).__name__} bounds no person's gradient; use Clipped")
    return found


@hands_on("grid_noise", "init", "draw", "finish", "unit_start", "step_response", "check", "check_point", "review")
class AbstractWrapper(AbstractEstimator[Memory]):
    """An estimator that wraps another one and forwards its memory and randomness by default."""

    inner: eqx.AbstractVar[AbstractEstimator]


def inner_quadrature(wrapper: AbstractWrapper, theta: Theta) -> tuple[Noise, Float[Array, " n"]] | None:
    """`quadrature` of a wrapper that draws what its `inner` does; such a class declares it itself."""
    return declared(wrapper.inner, "quadrature", theta)


def check_inner(wrapper: AbstractWrapper) -> None:
    """Raise unless `inner` is an estimator."""
    if not isinstance(wrapper.inner, AbstractEstimator):
        raise ValueError(
            f"{type(wrapper).__name__}: inner must be an estimator such as pf.estimators.Minibatch(); "
            f"got {wrapper.inner!r}."
        )

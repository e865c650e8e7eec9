"""The estimator slot: what direction does a client compute from a batch?"""

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
    """What estimators look at in a `pf.Problem`, which is made of parts and therefore stands above them."""

    @property
    def loss(self) -> Loss: ...

    @property
    def population(self) -> AbstractPopulation: ...

    @property
    def clients(self) -> int: ...

    @property
    def client_weights(self) -> Float[Array, " N"] | np.ndarray: ...


class AbstractEstimator(AbstractPart, Generic[Memory]):
    """A direction v such that the client steps to theta - eta v. The memory lives with the client.

    Randomness is drawn ahead for all steps of a round by `draw` and handed to `estimate` step by step.
    """

    sends_update_only: ClassVar[bool] = False
    """Whether clients send nothing beside the update."""

    learns_reaction: ClassVar[bool] = False
    """Whether its direction holds how people react to the model that the client trains."""

    keeps_samples: ClassVar[bool] = False
    """Whether clients remember samples of past rounds."""

    needs_exploration: ClassVar[bool] = False
    """Whether it learns from models that are deployed beside the global one (`pf.Explore`)."""

    def bound(self) -> Bound | None:
        """What bounds one person's share in the sum of a batch's gradients, with its noise; None where nothing does."""
        return None

    @property
    def grid_noise(self) -> bool:
        """Whether what it draws is noise that may come as whole numbers on a grid (`performative._base.noise`)."""
        return False

    def init(self, theta: Theta, population: AbstractPopulation, loss: Loss) -> Memory:
        """The memory of one client at the start; None where nothing is remembered."""
        return None  # type: ignore[return-value]  # Memory is None where nothing is remembered

    def draw(self, key: PRNGKeyArray, steps: int, theta: Theta) -> Noise:
        """Randomness with leading axis `steps`; None where none is needed, and then it costs nothing."""
        return None

    def quadrature(self, theta: Theta) -> tuple[Noise, Float[Array, " n"]] | None:
        """What `draw` gives for one step, as a rule: nodes with a leading axis n (and none of steps), and weights.

        Sums over it are the expectations of functions that are quadratic in what is drawn. None where none is known.
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
        """What this rule makes of a gradient of 1, `gone` steps away from the start of the round: 1, if nothing.

        Says how much a round's local steps weigh (`Upload.effective_step`), so that unequal work can be made up for.
        """
        return jnp.ones_like(gone), carry

    def check(self, problem: Problem, theta: Theta, batch: AbstractBatch) -> None:
        """Refuse, or warn of, what this rule cannot serve; called once, before a run."""

    def check_point(self, problem: Problem, stable: Theta) -> None:
        """Warn where this rule cannot settle at the stable point; called before a run where that point is known."""

    def review(self, memory: Memory) -> list[str]:
        """What the clients' memories after a run give reason to say."""
        return []


def bound_of(estimator: AbstractEstimator) -> Bound:
    """What an estimator's own class declares of `bound`, for a wrapper that looks at no data beside it."""
    found = declared(estimator, "bound")
    if found is None:
        raise Uncertified(f"the estimator {type(estimator).__name__} bounds no person's gradient; use Clipped")
    return found


@hands_on("grid_noise", "init", "draw", "finish", "unit_start", "step_response", "check", "check_point", "review")
class AbstractWrapper(AbstractEstimator[Memory]):
    """An estimator around another one, whose memory and randomness it hands on unless it says otherwise."""

    inner: eqx.AbstractVar[AbstractEstimator]


def inner_quadrature(wrapper: AbstractWrapper, theta: Theta) -> tuple[Noise, Float[Array, " n"]] | None:
    """`quadrature` of a wrapper that draws what its `inner` does. A class declares it itself."""
    return declared(wrapper.inner, "quadrature", theta)


def check_inner(wrapper: AbstractWrapper) -> None:
    """Refuse what is no estimator in the place of one."""
    if not isinstance(wrapper.inner, AbstractEstimator):
        raise ValueError(
            f"{type(wrapper).__name__}: inner must be an estimator such as pf.estimators.Minibatch(); "
            f"got {wrapper.inner!r}."
        )

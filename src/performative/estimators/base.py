"""The estimator slot: what direction does a client compute from a batch?"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
from jaxtyping import PRNGKeyArray, PyTree

from performative.batches import AbstractBatch
from performative.types import Batch, Estimate, Local, Loss, Memory, Noise, Theta, Upload


class AbstractEstimator(eqx.Module):
    """A direction v such that the client steps to theta - eta v. The memory lives with the client.

    Randomness is drawn ahead for all steps of a round by `draw` and handed to `estimate` step by step.
    """

    def init(self, theta: Theta, population: Any, loss: Loss) -> Memory:
        """The memory of one client at the start; None where nothing is remembered."""
        return None

    def draw(self, key: PRNGKeyArray, steps: int, theta: Theta) -> Noise:
        """Randomness with leading axis `steps`; None where none is needed, and then it costs nothing."""
        return None

    @abstractmethod
    def estimate(self, noise: Noise, theta: Theta, batch: Batch, local: Local, memory: Memory) -> Estimate:
        """The direction at the local model theta."""

    def finish(self, upload: Upload, local: Local, memory: Memory) -> tuple[dict[str, PyTree], Memory]:
        """What the client adds to its upload after the last step of a round, by name, and its memory."""
        return {}, memory

    def check(self, problem: Any, theta: Theta, batch: AbstractBatch) -> None:
        """Refuse, or warn of, what this rule cannot serve; called once, before a run."""


class AbstractWrapper(AbstractEstimator):
    """An estimator around another one, whose memory and randomness it hands on unless it says otherwise."""

    inner: eqx.AbstractVar[AbstractEstimator]

    def init(self, theta: Theta, population: Any, loss: Loss) -> Memory:
        return self.inner.init(theta, population, loss)

    def draw(self, key: PRNGKeyArray, steps: int, theta: Theta) -> Noise:
        return self.inner.draw(key, steps, theta)

    def finish(self, upload: Upload, local: Local, memory: Memory) -> tuple[dict[str, PyTree], Memory]:
        return self.inner.finish(upload, local, memory)

    def check(self, problem: Any, theta: Theta, batch: AbstractBatch) -> None:
        self.inner.check(problem, theta, batch)

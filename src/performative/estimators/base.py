"""The estimator slot: what direction does a client compute from a batch?"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
from jaxtyping import PRNGKeyArray, PyTree

from performative.types import Batch, Estimate, Local, Memory, Noise, Theta, Upload


class AbstractEstimator(eqx.Module):
    """A direction v such that the client steps to theta - eta v. The memory lives with the client.

    Randomness is drawn ahead for all steps of a round by `draw` and handed to `estimate` step by step.
    """

    def init(self, theta: Theta, population: Any) -> Memory:
        """The memory of one client at the start; None where nothing is remembered."""
        return None

    def draw(self, key: PRNGKeyArray, steps: int, theta: Theta) -> Noise:
        """Randomness with leading axis `steps`; None where none is needed, and then it costs nothing."""
        return None

    @abstractmethod
    def estimate(self, noise: Noise, theta: Theta, batch: Batch, local: Local, memory: Memory) -> Estimate:
        """The direction at the local model theta."""

    def finish(self, upload: Upload, local: Local, memory: Memory) -> tuple[PyTree, Memory]:
        """What the client adds to its upload after the last step of a round, and its memory."""
        return None, memory

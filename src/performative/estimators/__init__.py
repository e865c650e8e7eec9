"""What direction a client computes from a batch."""

from performative.estimators.base import AbstractEstimator
from performative.estimators.minibatch import Minibatch
from performative.estimators.performative import Performative

__all__ = ["AbstractEstimator", "Minibatch", "Performative"]

"""What direction a client computes from a batch."""

from performative.estimators.base import AbstractEstimator
from performative.estimators.minibatch import Minibatch

__all__ = ["AbstractEstimator", "Minibatch"]

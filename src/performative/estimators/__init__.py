"""What direction a client computes from a batch."""

from performative.estimators.adaptive_size import AdaptiveSize
from performative.estimators.base import AbstractEstimator
from performative.estimators.clipped import Clipped
from performative.estimators.clipped_model import ClippedModel
from performative.estimators.dice import Dice
from performative.estimators.filtered import Filtered
from performative.estimators.minibatch import Minibatch
from performative.estimators.performative import Performative

__all__ = [
    "AbstractEstimator",
    "AdaptiveSize",
    "Clipped",
    "ClippedModel",
    "Dice",
    "Filtered",
    "Minibatch",
    "Performative",
]

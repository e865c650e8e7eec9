"""What direction a client computes from a batch."""

from performative.estimators.adaptive_size import AdaptiveSize
from performative.estimators.base import AbstractEstimator
from performative.estimators.clipped import Clipped
from performative.estimators.clipped_model import ClippedModel
from performative.estimators.control_variate import ControlVariate
from performative.estimators.dice import Dice
from performative.estimators.filtered import Filtered
from performative.estimators.minibatch import Minibatch, batch_gradient, count_samples
from performative.estimators.model_risks import ModelRisks
from performative.estimators.performative import Performative
from performative.estimators.plug_in import PlugIn
from performative.estimators.preconditioned import Preconditioned
from performative.estimators.prox import Prox
from performative.estimators.robust import Robust
from performative.estimators.snapshots import Snapshots
from performative.estimators.with_loss import WithLoss
from performative.estimators.zeroth_order import ZerothOrder

__all__ = [
    "AbstractEstimator",
    "AdaptiveSize",
    "Clipped",
    "ClippedModel",
    "ControlVariate",
    "Dice",
    "Filtered",
    "Minibatch",
    "ModelRisks",
    "Performative",
    "PlugIn",
    "Preconditioned",
    "Prox",
    "Robust",
    "Snapshots",
    "WithLoss",
    "ZerothOrder",
    "batch_gradient",
    "count_samples",
]

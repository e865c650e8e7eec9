"""What logs of past deployments say: who reacts, how much, and where retraining leads."""

from performative.audit.distance import Distances, shift_distances
from performative.audit.drivers import Driver, drivers
from performative.audit.effect import Effect, effect_test
from performative.audit.fit import Fit, fit
from performative.audit.fitted import fitted_problem
from performative.audit.log import ClientLog, with_covariances
from performative.audit.outlook import Outlook, outlook
from performative.audit.response import Direction, Response, response

__all__ = [
    "ClientLog",
    "Direction",
    "Distances",
    "Driver",
    "Effect",
    "Fit",
    "Outlook",
    "Response",
    "drivers",
    "effect_test",
    "fit",
    "fitted_problem",
    "outlook",
    "response",
    "shift_distances",
    "with_covariances",
]

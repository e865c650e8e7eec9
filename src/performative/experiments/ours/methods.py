"""The slides' methods on data that react: the functions for data that stay, with a reaction in their constants."""

from performative.experiments.heterogeneity.choice import power_of_choice
from performative.experiments.heterogeneity.cyclic import unequal_groups
from performative.experiments.heterogeneity.drift import client_drift
from performative.experiments.heterogeneity.fedexp import balanced
from performative.experiments.heterogeneity.images import methods
from performative.experiments.heterogeneity.nova import unequal_work
from performative.experiments.heterogeneity.varp import participation

__all__ = [
    "balanced",
    "client_drift",
    "methods",
    "participation",
    "power_of_choice",
    "unequal_groups",
    "unequal_work",
]

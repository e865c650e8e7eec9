"""The slides' methods on data that react: the functions for data that stay, with a reaction in their constants."""

from performative.papers.heterogeneity.choice import power_of_choice
from performative.papers.heterogeneity.cyclic import unequal_groups
from performative.papers.heterogeneity.drift import client_drift
from performative.papers.heterogeneity.fedexp import balanced
from performative.papers.heterogeneity.images import methods
from performative.papers.heterogeneity.nova import unequal_work
from performative.papers.heterogeneity.varp import participation

__all__ = [
    "balanced",
    "client_drift",
    "methods",
    "participation",
    "power_of_choice",
    "unequal_groups",
    "unequal_work",
]

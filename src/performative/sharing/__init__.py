"""Who shares a model with whom."""

from performative.sharing.base import AbstractSharing, OneModel
from performative.sharing.groups import Groups, LearntGroups
from performative.sharing.partial import Rolling, Widths
from performative.sharing.personal import Ditto, Heads, Interpolated, PerClient, PFedMe

__all__ = [
    "AbstractSharing",
    "Ditto",
    "Groups",
    "Heads",
    "Interpolated",
    "LearntGroups",
    "OneModel",
    "PFedMe",
    "PerClient",
    "Rolling",
    "Widths",
]

"""Who shares a model with whom."""

from performative.sharing.base import AbstractSharing, OneModel
from performative.sharing.groups import Groups, LearntGroups
from performative.sharing.partial import AbstractPartial
from performative.sharing.personal import Ditto, Heads, Interpolated, PerClient, PFedMe
from performative.sharing.rolling import Rolling
from performative.sharing.widths import Widths

__all__ = [
    "AbstractPartial",
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

"""Who shares a model with whom."""

from performative._deprecated import old_name
from performative.sharing.base import AbstractSharing, OneModel
from performative.sharing.groups import Groups, LearnedGroups
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
    "LearnedGroups",
    "OneModel",
    "PFedMe",
    "PerClient",
    "Rolling",
    "Widths",
]


def __getattr__(name: str) -> object:
    return old_name(__name__, name)

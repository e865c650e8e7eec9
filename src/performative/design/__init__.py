"""What to deploy next: the least exploration that reveals how people react, and its cost."""

from typing import TYPE_CHECKING

from performative._base.lazy import later
from performative.design.conditions import Conditions
from performative.design.designing import design
from performative.design.outcome import Alternative, Design
from performative.design.people import conditions_of

if TYPE_CHECKING:
    from performative.design.past import conditions_of_logs

__all__ = ["Alternative", "Conditions", "Design", "conditions_of", "conditions_of_logs", "design"]

__getattr__ = later(__name__, {"conditions_of_logs": "past"})

"""What to deploy next: the least exploration that tells how people react, and its cost."""

from performative.design.conditions import Conditions
from performative.design.designing import design
from performative.design.outcome import Alternative, Design
from performative.design.past import conditions_of_logs
from performative.design.people import conditions_of

__all__ = ["Alternative", "Conditions", "Design", "conditions_of", "conditions_of_logs", "design"]

"""What would happen if the people in a table responded to the model, over a range of strengths."""

from performative.assess.assessing import assess
from performative.assess.outcome import Assessment

__all__ = ["Assessment", "assess"]

"""After a run: how well is the stable point known, and the risk there?"""

from performative.inference.asking import confidence
from performative.inference.outcome import Confidence, Interval

__all__ = ["Confidence", "Interval", "confidence"]

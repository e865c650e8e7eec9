"""After a run: how precisely are the stable point and the risk there known?"""

from performative.inference.asking import confidence
from performative.inference.outcome import Confidence, Interval

__all__ = ["Confidence", "Interval", "confidence"]

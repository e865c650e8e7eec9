"""Many settings at once: one compilation for all that differ in numbers only."""

from performative.sweep.result import Best, Sweep
from performative.sweep.running import sweep

__all__ = ["Best", "Sweep", "sweep"]

"""Many settings at once: one compilation for all settings that differ only in numbers."""

from performative.sweep.result import Best, Sweep
from performative.sweep.running import sweep

__all__ = ["Best", "Sweep", "sweep"]

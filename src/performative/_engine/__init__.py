"""Rounds, the compiled loop over them, and `run`. Private: `pf.run`, `pf.executors` and others are the public names."""

from performative._engine.checkpoint import Checkpoint
from performative._engine.clock import Clock
from performative._engine.run import estimate_memory, run

__all__ = ["Checkpoint", "Clock", "estimate_memory", "run"]

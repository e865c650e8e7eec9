"""Rounds, the compiled loop over them, and `run`."""

from performative.engine.checkpoint import Checkpoint
from performative.engine.client import client_round, init_client
from performative.engine.clock import Clock
from performative.engine.executors import AbstractExecutor, Dense, Gather, Loop, Sharded
from performative.engine.keys import ClientKeys, RunKeys, run_keys
from performative.engine.records import Report
from performative.engine.run import estimate_memory, run
from performative.engine.setup import Setup
from performative.engine.simulated import federated_round

__all__ = [
    "AbstractExecutor",
    "Checkpoint",
    "ClientKeys",
    "Clock",
    "Dense",
    "Gather",
    "Loop",
    "Report",
    "RunKeys",
    "Setup",
    "Sharded",
    "client_round",
    "estimate_memory",
    "federated_round",
    "init_client",
    "run",
    "run_keys",
]

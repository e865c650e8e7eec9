"""Rounds, the compiled loop over them, and `run`."""

from performative.engine.client import client_round, init_client
from performative.engine.clock import Clock
from performative.engine.keys import ClientKeys, RunKeys, run_keys
from performative.engine.report import Report, Setup
from performative.engine.round import federated_round
from performative.engine.run import estimate_memory, run

__all__ = [
    "ClientKeys",
    "Clock",
    "Report",
    "RunKeys",
    "Setup",
    "client_round",
    "estimate_memory",
    "federated_round",
    "init_client",
    "run",
    "run_keys",
]

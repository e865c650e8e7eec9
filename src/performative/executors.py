"""How the clients of a round are run: all at once, only participants, one at a time, or over several devices.

A custom executor is a subclass of `AbstractExecutor`; the other names here are what it works with.
"""

from performative._engine.client import client_round, init_client
from performative._engine.executors import AbstractExecutor, Dense, Gather, Loop, Sharded
from performative._engine.keys import ClientKeys, RunKeys, run_keys
from performative._engine.prepare import on_device
from performative._engine.records import Report
from performative._engine.setup import Setup, init_state, prepare
from performative._engine.simulated import federated_round

__all__ = [
    "AbstractExecutor",
    "ClientKeys",
    "Dense",
    "Gather",
    "Loop",
    "Report",
    "RunKeys",
    "Setup",
    "Sharded",
    "client_round",
    "federated_round",
    "init_client",
    "init_state",
    "on_device",
    "prepare",
    "run_keys",
]

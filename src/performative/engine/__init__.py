"""Rounds, the compiled loop over them, and `run`."""

from performative.engine.client import client_round, init_client
from performative.engine.keys import ClientKeys, RunKeys, run_keys
from performative.engine.round import Clock, Report, Setup, federated_round
from performative.engine.run import run

__all__ = [
    "ClientKeys",
    "Clock",
    "Report",
    "RunKeys",
    "Setup",
    "client_round",
    "federated_round",
    "init_client",
    "run",
    "run_keys",
]

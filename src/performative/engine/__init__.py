"""Rounds, the compiled loop over them, and `run`."""

from performative.engine.client import RoundKeys, client_round, init_client, round_keys
from performative.engine.round import Clock, Report, Setup, federated_round
from performative.engine.run import run

__all__ = [
    "Clock",
    "Report",
    "RoundKeys",
    "Setup",
    "client_round",
    "federated_round",
    "init_client",
    "round_keys",
    "run",
]

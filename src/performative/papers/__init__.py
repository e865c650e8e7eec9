"""Reproduce every figure of the papers by name, with a verdict on each claim.

`reproduce(name)` runs one experiment; `catalog.names()` lists them; `ledger.read()` returns all claims.
"""

from performative._deprecated import old_name
from performative.papers import catalog, ledger
from performative.papers.catalog import PAPERS, Experiment
from performative.papers.outcome import Outcome
from performative.papers.runner import RESULTS, reproduce, reproduce_all

__all__ = ["PAPERS", "RESULTS", "Experiment", "Outcome", "catalog", "ledger", "reproduce", "reproduce_all"]


def __getattr__(name: str) -> object:
    return old_name(__name__, name)

"""Every figure of the papers, by name, with a verdict for each claim.

`reproduce(name)` runs one experiment; `catalogue.names()` lists them; `ledger.read()` holds all claims.
"""

from performative.papers import catalogue, ledger
from performative.papers.catalogue import PAPERS, Experiment
from performative.papers.outcome import Outcome
from performative.papers.runner import RESULTS, reproduce, reproduce_all

__all__ = ["PAPERS", "RESULTS", "Experiment", "Outcome", "catalogue", "ledger", "reproduce", "reproduce_all"]

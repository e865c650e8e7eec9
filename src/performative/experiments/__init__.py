"""Every figure of the papers, by name, with a verdict for each claim.

`reproduce(name)` runs one experiment; `catalogue.names()` lists them; `ledger.read()` holds all claims.
"""

from performative.experiments import catalogue, ledger
from performative.experiments.catalogue import PAPERS, Experiment
from performative.experiments.outcome import Outcome
from performative.experiments.runner import RESULTS, reproduce, reproduce_all

__all__ = ["PAPERS", "RESULTS", "Experiment", "Outcome", "catalogue", "ledger", "reproduce", "reproduce_all"]

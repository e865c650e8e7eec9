"""Figures 5 and 8 to 11: credit scores, by the functions of the later version."""

from performative.experiments.p_fedavg.credit import batches

__all__ = ["batches"]

"""Diagnostics that a run alone does not provide: client drift, selection skew."""

from performative.diagnostics.client_drift import average_drift
from performative.diagnostics.selection_skew import selection_skew

__all__ = ["average_drift", "selection_skew"]

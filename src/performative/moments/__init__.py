"""Exact means and covariances of runs, without a simulation."""

from performative.moments.exact import moments
from performative.moments.outcome import Moments, Radii, Stationary
from performative.moments.stability import Stability, stability

__all__ = ["Moments", "Radii", "Stability", "Stationary", "moments", "stability"]

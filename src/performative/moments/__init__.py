"""Exact means and covariances of runs, without simulation."""

from performative.moments.exact import moments
from performative.moments.near import forecast
from performative.moments.outcome import Forecast, Moments, Radii, Stationary
from performative.moments.stability import Stability, stability

__all__ = ["Forecast", "Moments", "Radii", "Stability", "Stationary", "forecast", "moments", "stability"]

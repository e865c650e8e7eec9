"""Exact means and covariances of runs, without a simulation."""

from performative.moments.exact import moments
from performative.moments.near import forecast
from performative.moments.outcome import Forecast, Moments, Radii, Stationary
from performative.moments.stability import Stability, stability
from performative.moments.tune import tune
from performative.moments.tuned import Tuned

__all__ = [
    "Forecast", "Moments", "Radii", "Stability", "Stationary", "Tuned", "forecast", "moments", "stability", "tune",
]  # fmt: skip

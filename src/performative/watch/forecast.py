"""Where retraining leads, from the models alone: does each model move closer to a fixed point, or away?"""

import dataclasses

import numpy as np

from performative.findings import Plain
from performative.watch.evidence import estimate
from performative.watch.series import Series


@dataclasses.dataclass(frozen=True)
class WatchForecast(Plain):
    r"""The slope of the retraining map, estimated from the retrained models.

        theta_{t+1} = c + J theta_t + noise (+ a trend, unless drift is "none"),      it settles if radius(J) < 1

    Attributes:
        contraction: estimated spectral radius of J; low, high: its confidence sequence,
            |trace J| / d <= radius <= least of the largest row and column sum of |J|, over all J in the sequences
        verdict: "settles", "runs away", "unknown"
        models: number of observed model changes

    This describes the retraining rule, with its step sizes, averages and exploration; the map is assumed linear.
    """

    contraction: float
    low: float
    high: float
    verdict: str
    models: int


def forecast(models: Series | None, alpha: float) -> WatchForecast:
    """The forecast; "unknown" before there are any data."""
    if models is None or models.sums is None:
        return WatchForecast(float("nan"), 0.0, float("inf"), "unknown", 0)
    d = models.columns
    slope, _ = estimate(models.sums)
    low, high = models.strength(alpha / d**2)[1:3]
    largest = np.maximum(np.abs(low), np.abs(high))
    top = float(min(largest.sum(axis=0).max(), largest.sum(axis=1).max()))
    trace = float(np.trace(low)), float(np.trace(high))
    bottom = max(trace[0], -trace[1], 0.0) / d
    value = float("nan") if np.isnan(slope).any() else float(np.abs(np.linalg.eigvals(slope)).max())
    verdict = "settles" if top < 1 else "runs away" if bottom > 1 else "unknown"
    return WatchForecast(value, bottom if np.isfinite(bottom) else 0.0, top, verdict, models.looks)

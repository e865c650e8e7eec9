"""Monitoring a running deployment: evidence and intervals that are valid at every look."""

from performative.watch.forecast import WatchForecast
from performative.watch.monitor import Outcome, Watch
from performative.watch.report import Reaction, WatchReport
from performative.watch.starting import watch

__all__ = ["Outcome", "Reaction", "Watch", "WatchForecast", "WatchReport", "watch"]

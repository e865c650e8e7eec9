"""Intervals from the records of a run alone."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from performative._base.checks import nearest
from performative._base.messages import warn
from performative.inference.autoregression import autoregression
from performative.inference.batch_means import BATCHES, batch_means
from performative.inference.cautions import doubts_of
from performative.inference.outcome import Confidence, Interval, Spread, intervals
from performative.inference.series import Recorded, kept_records, rows_of

Shape = Callable[[np.ndarray], Any]
METHODS = ("plug-in", "batch means", "autoregression")


def alone(history: Recorded, level: float = 0.95, method: str | None = None) -> Confidence:
    """Confidence intervals of a run from its records alone, see `pf.confidence`."""
    check_level(level)
    spread, shape = spread_of(history, method)
    notes = (*doubts_of(history), *spread.doubts)
    return told(intervals(spread, level, shape, risk=recorded_risk(history, level), notes=notes))


def spread_of(history: Recorded, method: str | None) -> tuple[Spread, Shape]:
    """By batch means, or by an autoregression if requested."""
    x, shape = settled_rows(history)
    if method == "autoregression":
        check_every_round(history)
        spread = autoregression(x)
    else:
        spread = batch_means(x[:, kept_records(history.rounds)])
    return for_all(spread, history), shape


def settled_rows(history: Recorded) -> tuple[np.ndarray, Shape]:
    """All recorded models of the repeats that did not diverge, [repeats, records, d]."""
    lengths = {np.shape(leaf)[1] for leaf in jax.tree.leaves(history.theta)}
    if lengths != {len(history.rounds)}:
        raise ValueError(
            "confidence needs the models of the whole run; record them with pf.Record(theta='all'). every=n thins them."
        )
    x, shape = rows_of(history.theta)
    good = settled(history) & np.all(np.isfinite(x), axis=(1, 2))
    if not np.any(settled(history)):
        raise ValueError("confidence: every repeat diverged, so there is nothing to estimate.")
    if not np.array_equal(good, settled(history)):
        raise ValueError("confidence: history.theta must be finite in repeats that did not diverge.")
    return x[good], shape


def settled(history: Recorded) -> np.ndarray:
    return np.asarray(history.stopped_at) < 0


def for_all(spread: Spread, history: Recorded) -> Spread:
    """The same for all repeats, NaN in those that diverged."""

    def spread_out(part: np.ndarray) -> np.ndarray:
        whole = np.full((len(history.stopped_at), *part.shape[1:]), np.nan)
        whole[settled(history)] = part
        return whole

    return dataclasses.replace(spread, center=spread_out(spread.center), covariance=spread_out(spread.covariance))


def recorded_risk(history: Recorded, level: float) -> Interval | None:
    """The mean performative risk of deployed models, if it was recorded often enough for batch means."""
    risks = history.risks.get("performative_risk")
    if risks is None:
        return None
    late = np.asarray(risks, np.float64)[settled(history)][:, kept_records(np.asarray(history.risk_rounds))]
    if late.shape[1] < 3 * BATCHES or not np.all(np.isfinite(late)):
        return None
    spread = for_all(batch_means(late[:, :, None]), history)
    if spread.doubts:
        return None
    half = spread.reach(level) * np.sqrt(spread.covariance[:, 0, 0])
    return Interval(spread.center[:, 0], spread.center[:, 0] - half, spread.center[:, 0] + half)


def told(found: Confidence) -> Confidence:
    """The same, with a warning if something speaks against it."""
    if found.notes:
        warn("interval-in-doubt", f"confidence: {' '.join(found.notes)}")
    return found


def check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"confidence: level must lie between 0 and 1; got {level}.")


def check_method(method: str | None) -> None:
    if method is not None and method not in METHODS:
        raise ValueError(f"confidence: there is no method {method!r}.{nearest(str(method), METHODS)}")


def check_every_round(history: Recorded) -> None:
    if np.any(np.diff(history.rounds) != 1):
        raise ValueError("confidence: an autoregression needs the models of every round; record with every=1.")

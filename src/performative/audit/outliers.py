"""Outliers that mask a reaction: they dominate the spread that a shift of the mean is measured against."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from performative.audit.client_report import MARGIN, ClientReport

# Outliers make a column this many times as wide: detecting the same shift then takes nine times the rows.
WIDER = 3.0
# Share of the rows on each side beyond the limits, if half of the rows are equal and the robust spread is 0.
_TAIL = 0.005


class Drowned(NamedTuple):
    """A column whose standard deviation is `wider` times what it is within `low` and `high`; `share` lie beyond."""

    client: str
    column: str
    wider: float
    low: float
    high: float
    share: float


def drowned(reports: Sequence[ClientReport]) -> tuple[Drowned, ...]:
    """Columns of clients without a detected reaction in which outliers dominate the spread, the worst first.

    low, high = median -+ 12 robust spreads (1.48 median distances), or the outer half percents if these are 0
    """
    found = []
    for one in reports:
        if one.reacts or one.log.sample is None or np.all(np.isnan(one.log.sample)):
            continue
        rows, _ = one.log.rows_kept()
        for j, name in enumerate(one.log.columns or ()):
            x = rows[:, j]
            middle = float(np.median(x))
            spread = 1.4826 * float(np.median(np.abs(x - middle)))
            low, high = middle - MARGIN * spread, middle + MARGIN * spread
            if spread == 0:
                low, high = (float(v) for v in np.quantile(x, [_TAIL, 1 - _TAIL]))
            inside = float(np.clip(x, low, high).std())
            wider = one.log.spread[j] / inside if inside > 0 else 0.0
            if wider >= WIDER:
                found.append(Drowned(one.name, name, wider, low, high, float(np.mean((x < low) | (x > high)))))
    return tuple(sorted(found, key=lambda line: -line.wider))

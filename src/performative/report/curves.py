"""From arrays to series: thinned, in few digits."""

import dataclasses
import json
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from performative.plotting import BAND
from performative.report.figure import Series

MOST_POINTS = 400


def thinning(most: int = MOST_POINTS) -> str:
    """What `kept` does, for readers."""
    return (
        f"A curve of more than {most} points is drawn at {most} of them at most, half spread evenly over their number "
        "and half over its logarithm, the first and the last among them; nothing is averaged over rounds."
    )


def kept(count: int, most: int = MOST_POINTS) -> np.ndarray:
    """Which of `count` points are drawn: evenly by number for linear axes and by logarithm for logarithmic ones."""
    if count <= most:
        return np.arange(count)
    even = np.linspace(0, count - 1, most - most // 2)
    by_log = np.geomspace(1, count, most // 2) - 1
    return np.unique(np.concatenate([even, by_log]).round().astype(int))


def digits(values: Iterable[Any], most: int = 6) -> list[Any]:
    """Numbers with few digits, for files; whole numbers stay whole and what is not finite becomes null."""
    return [_digits(value, most) for value in np.asarray(list(values)).tolist()]


def _digits(value: Any, most: int) -> Any:
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{most}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def curve(name: str, x: Any, values: Any, most: int = MOST_POINTS, **looks: Any) -> Series:
    """Mean over repeats of `values` [repeats, points] and the band with the middle 80 % of them.

    As in `History.plot`: a repeat that became non-finite is left out from there on.
    """
    values, x = np.asarray(values, np.float64), np.asarray(x)
    finite = np.where(np.isfinite(values), values, np.nan)
    whole = ~np.all(np.isnan(finite), axis=0)
    finite, x = finite[:, whole], x[whole]
    at = kept(len(x), most)
    finite, x = finite[:, at], x[at]
    made = Series(name, digits(np.nanmean(finite, axis=0)), digits(x), **looks)
    if len(finite) > 1 and len(x):
        # The one that knows of NaN takes column after column, fifty times as long.
        quantiles = np.nanquantile if np.isnan(finite).any() else np.quantile
        low, high = quantiles(finite, BAND, axis=0)
        made = dataclasses.replace(made, low=digits(low), high=digits(high))
    return made


def with_costs(series: Series, spent: dict[str, tuple[np.ndarray, np.ndarray]]) -> Series:
    """The same curve, to be drawn against what was spent by each of its rounds as well."""
    along = {name: digits(np.interp(series.x, rounds, total)) for name, (rounds, total) in spent.items()}
    return dataclasses.replace(series, along=along)


def packed(value: Any) -> str:
    """JSON for a script element: no sign in it can end the element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")

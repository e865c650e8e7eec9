"""Turn arrays into series: thinned, with few digits."""

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
    """What `kept` does, for readers of a page."""
    return (
        f"A curve with more than {most} points is drawn at no more than {most} of them, half spaced evenly and half "
        "logarithmically, including the first and the last; nothing is averaged over rounds."
    )


def kept(count: int, most: int = MOST_POINTS) -> np.ndarray:
    """Which of `count` points are drawn: evenly spaced for linear axes, logarithmically for logarithmic ones."""
    if count <= most:
        return np.arange(count)
    even = np.linspace(0, count - 1, most - most // 2)
    by_log = np.geomspace(1, count, most // 2) - 1
    return np.unique(np.concatenate([even, by_log]).round().astype(int))


def digits(values: Iterable[Any], most: int = 6) -> list[Any]:
    """Numbers with few digits, for files; integers stay integers and non-finite values become null."""
    return [_digits(value, most) for value in np.asarray(list(values)).tolist()]


def _digits(value: Any, most: int) -> Any:
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{most}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def curve(name: str, x: Any, values: Any, most: int = MOST_POINTS, **looks: Any) -> Series:
    """Mean over repeats of `values` [repeats, points] and the band with the middle 80% of them.

    As in `History.plot`, a repeat that became non-finite is excluded from there on.
    """
    values, x = np.asarray(values, np.float64), np.asarray(x)
    finite = np.where(np.isfinite(values), values, np.nan)
    whole = ~np.all(np.isnan(finite), axis=0)
    finite, x = finite[:, whole], x[whole]
    at = kept(len(x), most)
    finite, x = finite[:, at], x[at]
    made = Series(name, digits(np.nanmean(finite, axis=0)), digits(x), **looks)
    if len(finite) > 1 and len(x):
        # nanquantile works column by column and takes fifty times as long.
        quantiles = np.nanquantile if np.isnan(finite).any() else np.quantile
        low, high = quantiles(finite, BAND, axis=0)
        made = dataclasses.replace(made, low=digits(low), high=digits(high))
    return made


def with_costs(series: Series, spent: dict[str, tuple[np.ndarray, np.ndarray]]) -> Series:
    """The same curve, which can also be drawn against the cost up to each round."""
    along = {name: digits(np.interp(series.x, rounds, total)) for name, (rounds, total) in spent.items()}
    return dataclasses.replace(series, along=along)


def packed(value: Any) -> str:
    """JSON for a script element: no character in it can close the element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")

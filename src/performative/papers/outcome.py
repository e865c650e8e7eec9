"""What an experiment's function returns: numbers for its claims, arrays for its figure."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import xarray

    from performative.history import History

# A value, or a value and its standard error.
Numbers = Mapping[str, float | tuple[float, float]]
# Points kept per curve: enough for a page of any width.
_POINTS = 300


class Outcome(NamedTuple):
    """numbers: {name: value or (value, standard error)}; data: {name: [series, repeat, x] or [series, repeat]}."""

    numbers: Numbers
    data: "dict[str, xarray.DataArray]" = {}  # noqa: RUF012  # never changed


def mean(values: Any) -> tuple[float, float]:
    """Mean over repeats and its standard error, which is unknown (inf) for a single repeat."""
    values = np.asarray(values, np.float64).ravel()
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.inf
    return float(values.mean()), float(error)


def tell(value: float, error: float = 0.0, digits: int = 4) -> str:
    """A number, with its error if it has one."""
    if error == np.inf:
        return f"{value:.{digits}g} (one run)"
    return f"{value:.{digits}g} ± {error:.2g}" if error else f"{value:.{digits}g}"


def curves(histories: "Mapping[str, History]", quantity: str, x: str = "round") -> "xarray.DataArray":
    """One recorded quantity of several runs: [series, repeat, x].

    Args:
        x: "round", "step" (rounds times local steps, the papers' t), or a recorded running total, such as "time".

    Each run keeps at most 300 points; at points that only some runs have, the others are NaN.
    """
    lines = {}
    for name, history in histories.items():
        at = history.risk_rounds if quantity in history.risks else history.rounds
        values = np.asarray(history[quantity], np.float64)
        lines[name] = thinned(_along(history, np.asarray(at), x), values)
    return lay_out(lines)


def lay_out(lines: Mapping[str, tuple[Any, Any]]) -> "xarray.DataArray":
    """{series: (x [points], values [repeats, points])} as [series, repeat, x]. x may differ between series."""
    import xarray as xr

    grid = np.unique(np.concatenate([np.asarray(x, np.float64) for x, _ in lines.values()]))
    repeats = max(len(np.atleast_2d(values)) for _, values in lines.values())
    cells = np.full((len(lines), repeats, len(grid)), np.nan)
    for row, (x, values) in zip(cells, lines.values(), strict=True):
        values = np.atleast_2d(np.asarray(values, np.float64))
        row[: len(values), np.searchsorted(grid, np.asarray(x, np.float64))] = values
    return xr.DataArray(cells, dims=("series", "repeat", "x"), coords={"series": list(lines), "x": grid})


def over(x: Any, lines: Mapping[str, Any]) -> "xarray.DataArray":
    """`lay_out` for series that share their x."""
    return lay_out({name: (x, values) for name, values in lines.items()})


def bars(values: Mapping[str, Any]) -> "xarray.DataArray":
    """{series: one value per repeat} as [series, repeat]."""
    import xarray as xr

    rows = [np.atleast_1d(np.asarray(row, np.float64)) for row in values.values()]
    cells = np.full((len(rows), max(map(len, rows))), np.nan)
    for cell, row in zip(cells, rows, strict=True):
        cell[: len(row)] = row
    return xr.DataArray(cells, dims=("series", "repeat"), coords={"series": list(values)})


def _along(history: "History", rounds: np.ndarray, x: str) -> np.ndarray:
    if x == "round":
        return rounds.astype(np.float64)
    if x == "step":
        return rounds.astype(np.float64) * int(history.meta["config"]["local_steps"])
    total = np.asarray(history[x], np.float64).mean(axis=0)
    return np.interp(rounds, history.rounds, total)


def thinned(x: Any, values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Thin x [points] and values [..., points] to points evenly spaced on a linear or log axis; keep all if few."""
    x, values = np.asarray(x), np.asarray(values)
    kept, last = np.arange(min(len(x), values.shape[-1])), min(len(x), values.shape[-1]) - 1
    if last >= _POINTS:
        even, log = np.linspace(0, last, _POINTS // 2), np.geomspace(1, last, _POINTS // 2)
        kept = np.unique(np.concatenate([even, log]).round().astype(int))
    return x[kept], values[..., kept]

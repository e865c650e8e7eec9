"""The figure of an experiment: one axes a panel, mean and spread over repeats."""

import math
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from performative.papers.catalog import Panel
from performative.papers.outcome import Numbers, Outcome
from performative.plotting import BAND, COLORS

if TYPE_CHECKING:
    import xarray

_GREY = "#777777"
_STYLES = ("-", "--", ":", "-.")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def draw(panels: tuple[Panel, ...], outcome: Outcome, title: str, place: str) -> Any:
    """A matplotlib figure. Bars have the color of the line of the same name, where there is one."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from performative.report.theme import theme

    columns = min(len(panels), 3)
    rows = math.ceil(len(panels) / columns)
    with rc_context(theme()):
        figure = Figure(figsize=(max(6.4, 4.6 * columns), 3.9 * rows + 0.4), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        lines = _colors_of_lines(panels, outcome)
        for ax, panel in zip(axes, panels, strict=False):
            if panel.data not in outcome.data:
                raise KeyError(f"panel {panel.data!r}: the experiment gives {sorted(outcome.data)}")
            _draw_panel(ax, panel, outcome.data[panel.data], outcome.numbers, lines)
        for ax in axes[len(panels) :]:
            ax.remove()
        width = 58 * columns
        whole = f"{title}  ({place})"
        told = [whole] if len(whole) <= width else [*textwrap.wrap(title, width), f"({place})"]
        figure.suptitle("\n".join(told), fontsize=12)
    return figure


def _names(array: "xarray.DataArray") -> list[str]:
    return [str(name) for name in array["series"].values]


def _colors_of_lines(panels: tuple[Panel, ...], outcome: Outcome) -> dict[str, str]:
    """{series: color} of all panels with lines, the first one's where they differ."""
    found: dict[str, str] = {}
    for panel in panels:
        if panel.kind != "bars" and panel.data in outcome.data:
            for i, name in enumerate(_names(outcome.data[panel.data])):
                found.setdefault(name, COLORS[i % len(COLORS)])
    return found


def _draw_panel(ax: Any, panel: Panel, array: "xarray.DataArray", numbers: Numbers, lines: dict[str, str]) -> None:
    names = _names(array)
    if panel.kind == "bars":
        matched = any(name in lines for name in names)
        _draw_bars(ax, names, array.values, [lines.get(name, _GREY if matched else COLORS[0]) for name in names])
    else:
        for i, name in enumerate(names):
            look = {"color": COLORS[i % len(COLORS)], "label": name}
            _draw_line(ax, array["x"].values, array.values[i], look, i, points=panel.kind == "points")
    for k, name in enumerate(panel.marks):
        number = numbers[name]
        level = number[0] if isinstance(number, (tuple, list)) else number
        _mark(ax, name.replace("_", " "), level, _STYLES[1 + k % 3], lying=panel.kind == "bars")
    if "x" in panel.log:
        ax.set_xscale("log")
    if "y" in panel.log:
        ax.set_yscale("log")
    ax.set(xlabel=panel.x, ylabel=panel.y, title=panel.title)
    if len(names) > 1 and panel.kind != "bars":
        ax.legend(fontsize=8, frameon=True, framealpha=0.8, facecolor="white", edgecolor="none")


def _mark(ax: Any, name: str, level: float, style: str, lying: bool) -> None:
    """A line at a number; bars lie, so it stands there."""
    look = {"color": _GREY, "linestyle": style, "linewidth": 1, "zorder": 1}
    told = {"fontsize": 7, "color": _GREY, "textcoords": "offset points"}
    if lying:
        ax.axvline(level, **look)
        ax.annotate(name, (level, 0), xycoords=("data", "axes fraction"), xytext=(2, 2), rotation=90, **told)
    else:
        ax.axhline(level, **look)
        ax.annotate(name, (1, level), xycoords=("axes fraction", "data"), xytext=(-2, 2), ha="right", **told)


def _draw_line(ax: Any, x: np.ndarray, values: np.ndarray, look: dict[str, Any], place: int, points: bool) -> None:
    finite = np.where(np.isfinite(values), values, np.nan)
    there = ~np.all(np.isnan(finite), axis=0)
    x, finite = x[there], finite[:, there]
    if not len(x):
        return
    middle = np.nanmean(finite, axis=0)
    spread = np.sum(~np.isnan(finite), axis=0).max() > 1
    low, high = np.nanquantile(finite, BAND, axis=0) if spread else (middle, middle)
    if points:
        reach = np.maximum(0, np.stack([middle - low, high - middle]))
        ax.errorbar(x, middle, reach, marker=_MARKERS[place % len(_MARKERS)], capsize=3, linewidth=1, **look)
        return
    ax.plot(x, middle, linestyle=_STYLES[place // len(COLORS) % len(_STYLES)], linewidth=1.6, zorder=3, **look)
    if spread:
        ax.fill_between(x, low, high, color=look["color"], alpha=0.18, linewidth=0, zorder=2)


def _draw_bars(ax: Any, names: list[str], values: np.ndarray, colors: list[str]) -> None:
    finite = np.where(np.isfinite(values), values, np.nan)
    places, middle = np.arange(len(names)), np.nanmean(finite, axis=1)
    low, high = np.nanquantile(finite, BAND, axis=1)
    reach = np.maximum(0, np.stack([middle - low, high - middle]))
    ax.barh(places, middle, xerr=reach, color=colors, error_kw={"capsize": 3, "linewidth": 1})
    ax.set_yticks(places, names)
    ax.invert_yaxis()

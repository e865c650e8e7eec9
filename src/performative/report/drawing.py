"""Draw views with matplotlib, on light and dark backgrounds."""

import base64
import textwrap
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from performative.report.figure import Series, View
from performative.report.formulas import for_matplotlib
from performative.report.theme import PALETTES, saved, theme

_DASHES = ("-", "--", ":", "-.", (0, (8, 3)), (0, (8, 3, 2, 3)))
_SYMBOLS = ("o", "D", "s", "^", "v", "X", "*")
# Inches, and the number of legend letters that fit into them.
_WIDTH, _LETTERS = 4.7, 66


def svg(view: View, dark: bool = False) -> bytes:
    """One view as SVG, as tall as its rows need."""
    import matplotlib
    from matplotlib.figure import Figure

    lines = sum(1 + name.count("\n") for name in view.rows)
    height = max(2.2, 1.5 + 0.27 * lines) if view.lying else 3.2
    with matplotlib.rc_context(theme(dark, **{"legend.fontsize": 9.0})):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained", facecolor="none")
        draw(figure.subplots(), view, dark)
        return saved(figure, "svg")


def picture(view: View) -> str:
    """An `img` element in a light and a dark version; the browser chooses."""
    on_light, on_dark = (
        f"data:image/svg+xml;base64,{base64.b64encode(svg(view, dark)).decode()}" for dark in (False, True)
    )
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{on_dark}">'
        f'<img src="{on_light}" alt="{escape(view.description, quote=True)}"></picture>'
    )


def png(views: Sequence[View], titles: Sequence[str]) -> bytes:
    """Views side by side as PNG, each with its title."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(theme(False, **{"legend.fontsize": 9.0})):
        figure = Figure(figsize=(4.35 * len(views), 4.2), layout="constrained", dpi=150)
        for ax, view, title in zip(figure.subplots(1, len(views)), views, titles, strict=True):
            draw(ax, view, above=False)
            ax.set_title(title, loc="left", fontweight="bold", fontsize=11, pad=16)
        return saved(figure, "png")


def draw(ax: Any, view: View, dark: bool = False, above: bool = True) -> None:
    """Draw a view into matplotlib axes, with the legend above or inside them."""
    shades = PALETTES[dark]
    for order, series in enumerate(view.dressed):
        look = {"color": shades[series.color or 0], "label": None if series.quiet else _plain(series.name)}
        (_draw_lying if view.lying else _draw_upright)(ax, view, series, order, look, shades)
    _draw_axes(ax, view)
    for place, mark in enumerate(view.marks):
        _draw_mark(ax, view, mark.name, mark.value, mark.upright or view.lying, _DASHES[1 + place % 3])
    names = [series.name for series in view.series if not series.quiet]
    if view.kind == "bars" or len(names) < 2:
        return
    if above:
        one_line = sum(len(name) + 6 for name in names) <= _LETTERS
        columns = len(names) if one_line else 2
        ax.figure.legend(loc="outside upper left", ncols=columns, columnspacing=1.0, handletextpad=0.4)
    else:
        ax.legend(loc="best", frameon=True, framealpha=0.8, facecolor="white", edgecolor="none")


def _draw_upright(ax: Any, view: View, series: Series, order: int, look: dict[str, Any], shades: Sequence[str]) -> None:
    x, y = np.asarray(series.x), _numbers(series.y)
    dash = _DASHES[series.dash or 0]
    low, high = (None, None) if series.low is None else (_numbers(series.low), _numbers(series.high))
    if view.kind == "points":
        joined = dash if series.joined else "none"
        symbol = _SYMBOLS[(order if series.symbol is None else series.symbol) % len(_SYMBOLS)]
        reach = None if low is None else np.maximum(0.0, [y - low, high - y])
        ax.errorbar(x, y, reach, marker=symbol, markersize=4.5, linestyle=joined, linewidth=1.2, zorder=3, **look)
        return
    marker, size = "o" if series.dotted or len(x) < 2 else None, 6.5 if len(x) < 2 else 3.5
    ax.plot(x, y, linestyle=dash, marker=marker, markersize=size, linewidth=1.5, zorder=3, **look)
    if low is not None:
        ax.fill_between(x, low, high, color=look["color"], alpha=0.22, linewidth=0, zorder=2)
    if series.filled:
        ax.fill_between(x, y, color=look["color"], alpha=0.3, linewidth=0, zorder=2)


def _draw_lying(ax: Any, view: View, series: Series, order: int, look: dict[str, Any], shades: Sequence[str]) -> None:
    at, y = _numbers(series.at), _numbers(series.y)
    colors = [look["color"]] * len(y) if series.colors is None else [shades[k] for k in series.colors]
    if view.kind == "bars":
        ax.barh(at, y, 0.62, color=colors)
    if series.low is not None:
        ends, bar = (_numbers(series.low), _numbers(series.high)), view.kind == "bars"
        ax.hlines(at, *ends, colors=[_ink(ax)] if bar else colors, linewidth=series.thick or 1.3, alpha=0.65, zorder=2)
    if view.kind == "rows":
        hollow = series.open or [False] * len(y)
        # The legend shows the first dot.
        for i, color in enumerate(colors):
            face, label = "none" if hollow[i] else color, None if i else look["label"]
            ax.plot(y[i], at[i], _SYMBOLS[series.symbol or 0], color=color, markersize=0.62 * (series.size or 10),
                    markerfacecolor=face, linestyle="none", label=label, zorder=3)  # fmt: skip
    for i, text in enumerate(series.labels or ()):
        ax.annotate(text, (y[i], at[i]), xytext=(0, 8), textcoords="offset points", ha="center")


def _draw_axes(ax: Any, view: View) -> None:
    along, up = (view.y, "") if view.lying else (view.x, view.y)
    ax.set_xlabel(_wrapped(along, 36 if view.lying else 52))
    ax.set_ylabel(_wrapped(up, 40))
    if "y" in view.log:
        (ax.set_xscale if view.lying else ax.set_yscale)("log")
    if "x" in view.log and not view.lying:
        ax.set_xscale("log")
    if view.range is not None:
        (ax.set_xlim if view.lying else ax.set_ylim)(*view.range)
    if view.lying:
        if view.ticks is not None:
            values, texts, ends = view.ticks
            ax.set_xticks(values, texts)
            ax.set_xlim(*(10.0**end for end in ends))
            ax.minorticks_off()
        ax.set_yticks(range(len(view.rows)), [_plain(name) for name in view.rows], fontsize=9.0)
        ax.set_ylim(len(view.rows) - 0.4, -0.7)
        ax.grid(axis="y", visible=False)
        if any(series.labels for series in view.series):
            ax.margins(x=0.14)
    elif "x" not in view.log and all(isinstance(x, int) for series in view.series for x in series.x):
        ax.xaxis.get_major_locator().set_params(integer=True)


def _draw_mark(ax: Any, view: View, name: str, value: float | int, upright: bool, dash: Any) -> None:
    look = {"color": _ink(ax), "linewidth": 1.0, "linestyle": dash, "zorder": 1}
    name = for_matplotlib(name)
    told = {"fontsize": 8.5, "textcoords": "offset points", "color": _ink(ax)}
    if upright:
        ax.axvline(value, **look)
        if view.kind == "bars":
            ax.annotate(
                for_matplotlib(name), (value, 0), xycoords=("data", "axes fraction"), xytext=(2, 2), rotation=90, **told
            )
        elif not view.lying:
            ax.annotate(
                for_matplotlib(name),
                (value, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, 2),
                va="bottom",
                **told,
            )
    else:
        ax.axhline(value, **look)
        ax.annotate(
            for_matplotlib(name), (1.0, value), xycoords=("axes fraction", "data"), xytext=(-2, 3), ha="right", **told
        )


def _numbers(values: Any) -> np.ndarray:
    """None becomes NaN, which is not drawn."""
    return np.array(list(values), np.float64)


def _plain(text: str, most: int = 34) -> str:
    """Truncate lines to the available room."""
    lines = [line if len(line) <= most or "$" in line else line[: most - 1] + "…" for line in text.split("\n")]
    return for_matplotlib("\n".join(lines))


def _wrapped(text: str, width: int) -> str:
    return for_matplotlib(text if "$" in text else "\n".join(textwrap.wrap(text, width)))


def _ink(ax: Any) -> str:
    color: str = ax.xaxis.label.get_color()
    return color

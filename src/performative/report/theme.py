"""Style of the figures on pages, on light and dark backgrounds."""

import io
from typing import Any

from performative.plotting import COLORS

# Colors by index, for light and dark backgrounds: on dark ones the middle blue and green would be too dim, so lighter
# shades of the same hues are used. The last color is for series that are not distinguished.
GREY = len(COLORS)
_LIGHTER = ("#56B4E9", "#F0904A", "#2CC295", "#E29BC4", "#F2BE4A", "#8FD0F2", "#d5dae0", "#8a949e")
PALETTES = {False: (*COLORS, "#777777"), True: _LIGHTER}

_BASE = {
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.15,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
    "svg.hashsalt": "performative",
}
_INKED = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color")
# Ink and background.
_PAPERS = {False: ("#1f2328", "#ffffff"), True: ("#d5dae0", "#16191d")}


def theme(dark: bool = False, **more: Any) -> Any:
    """matplotlib settings for a light or dark background, updated with `more`."""
    ink, paper = _PAPERS[dark]
    return {**_BASE, **dict.fromkeys(_INKED, ink), "axes.facecolor": "none", "figure.facecolor": paper, **more}


def saved(figure: Any, kind: str, **options: Any) -> bytes:
    """A figure as "png", "svg" or "pdf", fonts embedded. It contains no date: the same numbers yield the same file."""
    buffer = io.BytesIO()
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    figure.savefig(buffer, format=kind, metadata=dates.get(kind), **options)
    return buffer.getvalue()

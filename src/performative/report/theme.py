"""How pictures of pages look, on light and on dark paper."""

import io
from typing import Any

from performative.plotting import COLORS

# Colors by number, on light and on dark paper: there the middle blue and green are too dim, so they are the same hues,
# lighter. The last is for what is not told apart.
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
# Ink and paper.
_PAPERS = {False: ("#1f2328", "#ffffff"), True: ("#d5dae0", "#16191d")}


def theme(dark: bool = False, **more: Any) -> Any:
    """matplotlib settings for one kind of paper; `more` are added to them."""
    ink, paper = _PAPERS[dark]
    return {**_BASE, **dict.fromkeys(_INKED, ink), "axes.facecolor": "none", "figure.facecolor": paper, **more}


def saved(figure: Any, kind: str, **options: Any) -> bytes:
    """A figure as "png", "svg" or "pdf", fonts embedded. No date inside: the same numbers give the same file."""
    buffer = io.BytesIO()
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    figure.savefig(buffer, format=kind, metadata=dates.get(kind), **options)
    return buffer.getvalue()

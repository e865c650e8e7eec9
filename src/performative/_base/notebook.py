"""Notebook display of an object: a card with a title, facts, sentences and a picture."""

import base64
import io
import re
import sys
from collections.abc import Iterable
from html import escape
from typing import Any

_CARD = "border:1px solid #8884;border-radius:6px;padding:.6em .9em;max-width:46em;font-size:.95em;line-height:1.45"
_CELL = "text-align:left;vertical-align:top;padding:.1em 1em .1em 0"


def in_notebook() -> bool:
    """Whether this is a kernel that shows figures at the end of a cell."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None


def card(
    title: str, facts: Iterable[tuple[str, Any]] = (), lines: Iterable[str] = (), picture: str = "", lead: str = ""
) -> str:
    """HTML that needs no style sheet and suits light and dark pages.

    Args:
        facts: (name, value), one row each; lead: one sentence in bold; lines: further sentences
        picture: HTML appended unchanged
    """
    cell = f'<td style="{_CELL}">'
    rows = "".join(
        f"<tr>{cell}<b>{escape(name)}</b></td>{cell}<code>{escape(str(value))}</code></td></tr>"
        for name, value in facts
    )
    told = "".join(f"<li>{_coded(line)}</li>" for line in lines)
    return (
        f'<div style="{_CARD}"><b>{escape(title)}</b>'
        + (f"<p><b>{_coded(lead)}</b></p>" if lead else "")
        + (f"<table>{rows}</table>" if rows else "")
        + (f"<ul>{told}</ul>" if told else "")
        + picture
        + "</div>"
    )


def _coded(text: str) -> str:
    """Escaped text, with what stands between backticks as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def picture_of(ax: Any, alt: str) -> str:
    """An `img` element of a drawn figure; the figure is closed so the notebook does not show it again."""
    buffer = io.BytesIO()
    figure = ax.figure
    figure.savefig(buffer, format="svg")
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close(figure)
    text = base64.b64encode(buffer.getvalue()).decode()
    return f'<img src="data:image/svg+xml;base64,{text}" alt="{escape(alt, quote=True)}" style="max-width:100%">'

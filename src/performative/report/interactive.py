"""One HTML file with interactive plots: the plotting library, the numbers and the script are embedded."""

import re
from collections.abc import Sequence
from html import escape
from typing import Any

from performative.report.curves import packed
from performative.report.figure import View
from performative.report.html import asset, document, filled
from performative.report.theme import PALETTES


class Plots:
    """The plots of one page: `add` stores the numbers and returns the element that the script fills."""

    def __init__(self) -> None:
        self.views: list[list[dict[str, Any]]] = []

    def add(
        self, views: Sequence[View], description: str, *, board: bool = False, pick: str = "Show", caption: str = ""
    ) -> str:
        """A figure with the views to choose from. `board`: its series follow the filters of a sweep."""
        shown = [one.to_dict() for one in views if one.series]
        if not shown:
            return ""
        self.views.append(shown)
        under = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        return (
            f'<figure class="plot" data-plot="{len(self.views) - 1}" data-pick="{escape(pick, quote=True)}"'
            f"{' data-board=yes' if board else ''}>"
            f'<div class="canvas" role="img" aria-label="{escape(description, quote=True)}"></div>{under}</figure>'
        )

    def data(self) -> dict[str, Any]:
        return {"plots": self.views, "palettes": {"light": PALETTES[False], "dark": PALETTES[True]}}


# The upload address of Plotly's "Share chart": a page sends nothing anywhere.
_UPLOAD = re.compile(r'"https://[^"]*plotly\.com/newchart"')


def page(title: str, lead: str, body: str, plots: Plots, footer: str = "") -> bytes:
    """The whole file. `lead` and `footer` are text, `body` is HTML."""
    from plotly.offline import get_plotlyjs

    top = filled("top.html", title=escape(title), lead=escape(lead))
    # Both files share one private scope.
    script = f'(() => {{\n"use strict";\n{asset("plots.js")}{asset("filters.js")}}})();\n'
    plotly = _UPLOAD.sub('""', get_plotlyjs())
    scripts = (
        f'\n<script type="application/json" id="data">{packed(plots.data())}</script>'
        f'\n<script id="plotly">{plotly}</script>\n<script>{script}</script>'
    )
    end = f"\n<footer>{escape(footer)}</footer>" if footer else ""
    head = filled("head.html", style=asset("interactive.css"))
    return document(title, top + body + end, head=head, scripts=scripts)


def card(head: str, *inside: str, extra: str = "") -> str:
    """A section with a heading; empty if it has no content."""
    content = "\n".join(part for part in inside if part)
    return f'<section class="card"{extra}><h2>{escape(head)}</h2>{content}</section>' if content else ""


def facts(rows: Sequence[tuple[str, Any]]) -> str:
    """Names and values in two columns; entries without a value are omitted."""
    lines = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(str(value))}</dd></div>"
        for name, value in rows
        if value is not None and value != ""
    )
    return f'<dl class="facts">{lines}</dl>'


def details(summary: str, inside: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{inside}</details>"


def sortable(head: Sequence[str], rows: Sequence[str], caption: str = "") -> str:
    """A table sortable by its headers. `rows` are complete <tr> elements; cells sort by data-value if they have one."""
    top = "".join(
        f'<th scope="col"><button type="button">{escape(name)}</button></th>' if name else '<th scope="col"></th>'
        for name in head
    )
    said = f'<p class="about">{escape(caption)}</p>' if caption else ""
    body = "\n".join(rows)
    return (
        f'{said}<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption or "table", quote=True)}">'
        f"<table data-sort><thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def number(value: Any) -> str:
    """A number with four significant digits."""
    return f"{value:.4g}" if isinstance(value, (int, float)) else str(value)

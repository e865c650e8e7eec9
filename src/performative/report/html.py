"""One HTML file that needs nothing else: no fonts or requests; light or dark as the system is."""

import base64
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib import resources
from string import Template


@cache
def asset(name: str) -> str:
    """The text of a file in `assets`."""
    return resources.files("performative.report").joinpath("assets", name).read_text(encoding="utf-8")


def filled(name: str, **holes: str) -> str:
    """A file in `assets` whose $names are filled in, with HTML as it is."""
    return Template(asset(name)).substitute(holes)


def document(title: str, body: str, *, head: str = "", scripts: str = "") -> bytes:
    """A whole page around a body. `head` and `scripts` are HTML for the end of the head and of the body."""
    holes = {"title": escape(title), "style": asset("page.css"), "head": head, "body": body, "scripts": scripts}
    return filled("document.html", **holes).encode()


def picture(light: bytes, dark: bytes, description: str) -> str:
    """An SVG in two colors; the browser takes the one that suits."""
    on_light, on_dark = (f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}" for svg in (light, dark))
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{on_dark}">'
        f'<img src="{on_light}" alt="{escape(description, quote=True)}"></picture>'
    )


def table(head: Sequence[str], rows: Sequence[Sequence[tuple[str, str] | str]]) -> str:
    """A table that scrolls sideways where it is too wide. A cell may be text and a smaller line below."""

    def cell(entry: tuple[str, str] | str) -> str:
        if isinstance(entry, str):
            return f"<td>{escape(entry)}</td>"
        return f"<td>{escape(entry[0])}<small>{escape(entry[1])}</small></td>"

    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "\n".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    return f'<div class="scroll"><table>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'

"""A self-contained HTML file: no fonts or requests; light or dark as the system setting."""

from functools import cache
from html import escape
from importlib import resources
from string import Template


@cache
def asset(name: str) -> str:
    """The text of a file in `assets`."""
    return resources.files("performative.report").joinpath("assets", name).read_text(encoding="utf-8")


def filled(name: str, **holes: str) -> str:
    """A file in `assets` with its $names filled in; HTML is not escaped."""
    return Template(asset(name)).substitute(holes)


def document(title: str, body: str, *, head: str = "", scripts: str = "") -> bytes:
    """A whole page around a body. `head` and `scripts` are HTML for the end of the head and of the body."""
    holes = {"title": escape(title), "style": asset("page.css"), "head": head, "body": body, "scripts": scripts}
    return filled("document.html", **holes).encode()

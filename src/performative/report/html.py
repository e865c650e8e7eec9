"""One HTML file that needs nothing else: no fonts or requests; light or dark as the system is."""

import base64
from collections.abc import Sequence
from html import escape

_STYLE = """
:root {
  color-scheme: light dark;
  --ink: #1f2328; --soft: #59636e; --paper: #ffffff; --card: #f6f8fa; --line: #d1d9e0;
}
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6eaef; --soft: #9aa4af; --paper: #0e1013; --card: #16191d; --line: #30363d; }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink); -webkit-text-size-adjust: 100%;
  font: 17px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main { max-width: 62rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: clamp(1.6rem, 5vw, 2.3rem); line-height: 1.15; margin: 0 0 .75rem; }
h2 { font-size: 1.05rem; margin: 0; color: var(--soft); font-weight: 600; }
p { margin: .6rem 0; }
.lead { color: var(--soft); max-width: 46rem; }
.card {
  background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  padding: 1.25rem; margin: 1.25rem 0; break-inside: avoid;
}
.split {
  display: grid; grid-template-columns: minmax(0, 5fr) minmax(0, 6fr); gap: 1.5rem; align-items: center;
}
.answer {
  font-size: clamp(1.25rem, 4vw, 1.6rem); line-height: 1.2; font-weight: 700; margin: .35rem 0 .6rem;
}
img { display: block; width: 100%; height: auto; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .5rem .7rem; border-bottom: 1px solid var(--line); text-align: right; }
th { font-size: .85rem; color: var(--soft); font-weight: 600; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; min-width: 6.5rem; padding-left: 0; }
tr:last-child td { border-bottom: 0; }
small { color: var(--soft); display: block; line-height: 1.35; }
pre {
  overflow-x: auto; margin: .75rem 0 0;
  font: .85rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
}
footer { color: var(--soft); font-size: .85rem; margin-top: 2rem; }
@media (max-width: 46rem) {
  main { padding-top: 1.5rem; }
  .card { padding: 1rem; }
  .split { grid-template-columns: minmax(0, 1fr); gap: .75rem; }
  th, td { padding: .45rem .3rem; font-size: .82rem; }
}
"""


def document(title: str, body: str, *, head: str = "", scripts: str = "") -> bytes:
    """A whole page around a body. `head` and `scripts` are HTML for the end of the head and of the body."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n{head}</head>\n"
        f"<body>\n<main>\n{body}\n</main>{scripts}\n</body>\n</html>\n"
    ).encode()


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

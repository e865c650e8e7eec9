"""The audit as one HTML file, without scripts or with interactive plots."""

from html import escape

from performative._base.notebook import card
from performative._version import __version__
from performative.audit.audit_report import AuditReport
from performative.audit.figures import pictures
from performative.audit.sections import FIRST, sections
from performative.report import interactive
from performative.report.drawing import picture
from performative.report.html import document
from performative.report.interactive import Plots

_TITLE = "What the logs show"
# No line break between a sign and its number.
_JOINED = (("&lt; 0.", "&lt;&nbsp;0."), ("p = ", "p&nbsp;=&nbsp;"), ("p &lt;", "p&nbsp;&lt;"))


def page(report: AuditReport) -> bytes:
    """Questions with answers and figures, every client, the groups, what to do, and what was assumed."""
    body = _body(report, {name: picture(one) for name, one in pictures(report).items()})
    lead = f'<h1>{_TITLE}</h1>\n<p class="lead">{escape(_lead(report))}</p>'
    made = f"<footer>{_made(report)}; all numbers are in audit.json.</footer>"
    return document(f"{_TITLE}: {report.logs.folder.name}", f"{_joined(lead)}\n{body}\n{made}")


def interactive_page(report: AuditReport, title: str | None = None) -> bytes:
    """The same with interactive plots, as written by `performative.report.write`."""
    plots = Plots()
    body = _body(report, {name: plots.add([one], one.description) for name, one in pictures(report).items()})
    title = title or f"{_TITLE}: {report.logs.folder.name}"
    footer = f"{_made(report)}; `performative audit` writes all numbers as JSON."
    return interactive.page(title, _lead(report), body, plots, footer)


def first_page(report: AuditReport) -> str:
    """What a notebook shows: the four sentences, the recommendation and the figure."""
    drawn = pictures(report)
    image = picture(drawn["short"]) if "short" in drawn else ""
    return card("Audit", lines=[*report.warnings, *report.said("brief")], picture=image, lead=report.verdict)


def _lead(report: AuditReport) -> str:
    def many(count: int, what: str) -> str:
        return f"{count:,} {what}{'' if count == 1 else 's'}"

    read = report.logs
    return (
        f"{many(len(read.deployments.names), 'deployment')}, {many(len(report.clients), 'client')}, {read.used:,} "
        f"rows from {read.folder.name or read.folder}. Drift that does not depend on the model was allowed for as "
        f"{report.drift!r}; tests are at level {report.level:g}, intervals at {100 * (1 - report.level):g}%."
    )


def _made(report: AuditReport) -> str:
    return f"performative {__version__}; seed {report.seed}"


def _body(report: AuditReport, drawn: dict[str, str]) -> str:
    every = list(sections(report))
    first = [section.page(drawn) for section in every if section.loud or section.title == FIRST]
    parts = [section.page(drawn) for section in every if not (section.loud or section.title == FIRST)]
    notes = "".join(f"<li>{escape(note)}</li>" for note in report.notes)
    if notes:
        parts.append(f'<section class="card"><h2>What was dropped or assumed</h2><ul>{notes}</ul></section>')
    behind = "\n".join(part for part in parts if part)
    short = "\n".join(part for part in first if part)
    return _joined(f"{short}\n<details><summary>The statistics behind it</summary>\n{behind}\n</details>")


def _joined(body: str) -> str:
    for text, kept in _JOINED:
        body = body.replace(text, kept)
    return body

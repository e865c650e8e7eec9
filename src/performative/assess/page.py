"""The assessment as one HTML file."""

from html import escape

from performative._version import __version__
from performative.assess.assessed import AbstractAssessment
from performative.assess.figures import pictures
from performative.assess.tables import features_table, groups_table, lead, strengths_table
from performative.assess.words import answers_of, findings_of
from performative.report.drawing import picture
from performative.report.html import document
from performative.report.section import Section

_TITLE = "If people respond to the model"


def page(found: AbstractAssessment) -> bytes:
    """Questions with answers and figures, all strengths, all coefficients, and how the table was prepared."""
    drawn = {name: picture(view) for name, view in pictures(found).items()}
    shown = {"answer.change": "change", "answer.cost": "cost", "answer.features": "features", "answer.groups": "groups"}
    sections = []
    for finding, (question, short, why) in zip(findings_of(found), answers_of(found), strict=True):
        name = shown.get(finding.code)
        sections.append(Section(question, short, [why], pictures=[name] if name else []))
    sections.append(Section("Over a range of strengths", tables=[strengths_table(found)]))
    sections.append(Section("Models by column", tables=[features_table(found)]))
    groups = groups_table(found)
    if groups is not None:
        sections.append(Section("Results by group", tables=[groups]))
    sections.append(Section("What the certificate says", said=found.certificate.reasons))
    body = "\n".join(section.page(drawn) for section in sections)
    notes = "".join(f"<li>{escape(note)}</li>" for note in found.notes)
    if notes:
        body += f'<section class="card"><h2>How the table was prepared</h2><ul>{notes}</ul></section>'
    top = f'<h1>{_TITLE}</h1>\n<p class="lead">{escape(lead(found))}</p>'
    made = f"performative {__version__}, written by `performative assess`; --json has all numbers."
    return document(f"{_TITLE}: {found.name}", f"{top}\n{body}\n<footer>{escape(made)}</footer>")

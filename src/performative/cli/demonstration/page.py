"""The demo's page."""

from html import escape

from performative.cli.demonstration.figures import pictures
from performative.cli.demonstration.outcome import Outcome
from performative.cli.demonstration.words import answers, model_cells
from performative.report.drawing import svg
from performative.report.html import document, picture, table

_TITLE = "When deploying the model changes the data"
_LEAD = (
    "Ten banks learn one model of who will default, without sharing their files. Applicants see the scores "
    "and answer: they change what they can (card utilization, debt ratio, open lines, new enquiries), at "
    "some banks hardly, at others a lot. The applicants are made up; everything else is computed."
)
_NEXT = """import pandas as pd, performative as pf

problem = pf.Problem.from_frame(pd.read_csv("people.csv"), client="bank", label="default",
                                strategic=["utilization"], strength=1.0)
history = pf.run(problem, pf.p_fedavg(rate=0.1, local_steps=5, batch=pf.Fixed(16)), rounds=200, repeats=8)
history.plot("performative_risk").figure.savefig("risk.png")"""


def page(outcome: Outcome) -> bytes:
    """Three questions with their answers and pictures, the models side by side, and how it was made."""
    cards = "\n".join(
        f'<section class="card split"><div><h2>{escape(question)}</h2><p class="answer">{escape(answer)}</p>'
        f"<p>{escape(reason)}</p></div>\n{picture(svg(one), svg(one, dark=True), one.description)}</section>"
        for (question, answer, reason), one in zip(answers(outcome), pictures(outcome), strict=True)
    )
    rows: list[list[tuple[str, str] | str]] = []
    for model in outcome.models:
        cells = [cell.replace(" ", "\u00a0") for cell in model_cells(model)]
        rows.append([(model.name, model.how), "\u00a0→ ".join(cells[:2]), "\u00a0→ ".join(cells[2:])])
    models = table(("model", "accuracy expected → deployed", "risk expected → deployed"), rows)
    meta, n = outcome.histories["p_fedavg"].meta, outcome.numbers
    made = (
        f"{n['clients']} banks, {n['rounds']} rounds, {n['seeds']} seeds, five banks a round, five local "
        f"steps of 32 applicants each. Residual of the exact points: {n['stable_residual']:.1e} (stable), "
        f"{n['optimal_residual']:.1e} (optimal). performative {meta['performative']}, jax {meta['jax']}, "
        f"{meta['dtype']} on {meta['device']}, {n['seconds']:.0f} s. Written by `performative demo`."
    )
    body = (
        f'<h1>{_TITLE}</h1>\n<p class="lead">{_LEAD}</p>\n{cards}\n'
        f'<section class="card"><h2>The models side by side</h2>\n{models}\n'
        "<p><small>Expected: on the data that the model learnt from. Deployed: on the data that it "
        "brings about. For a stable point the two are the same; that makes it stable.</small></p></section>\n"
        f'<section class="card"><h2>Your own data</h2><pre>{escape(_NEXT)}</pre></section>\n'
        f"<footer>{escape(made)}</footer>"
    )
    return document(_TITLE, body)

"""The demo's page."""

from html import escape

from performative.cli.demonstration.figures import pictures
from performative.cli.demonstration.outcome import Outcome
from performative.cli.demonstration.words import answers, models
from performative.report.drawing import picture
from performative.report.html import document
from performative.report.section import Section

_TITLE = "When deploying the model changes the data"
_LEAD = (
    "Ten banks train one model of who will default, without sharing their data. Applicants see the scores "
    "and respond: they change what they can (card utilization, debt ratio, open lines, new enquiries), at "
    "some banks hardly, at others a lot. The applicants are synthetic; everything else is computed."
)
_NEXT = """import pandas as pd, performative as pf

problem = pf.Problem.from_frame(pd.read_csv("people.csv"), client="bank", label="default",
                                strategic=["utilization"], strength=1.0)
history = pf.run(problem, pf.p_fedavg(rate=0.1, local_steps=5, batch=pf.Fixed(16)), rounds=200, repeats=8)
history.plot("performative_risk").figure.savefig("risk.png")"""


def page(outcome: Outcome) -> bytes:
    """Three questions with their answers and figures, a comparison of the models, and the settings."""
    drawn = {one.label: picture(one) for one in pictures(outcome)}
    sections = [
        Section(question, answer, [reason], pictures=[name])
        for (question, answer, reason), name in zip(answers(outcome), drawn, strict=True)
    ]
    sections.append(Section("Comparison of the models", tables=[models(outcome)]))
    sections.append(Section("Your own data", code=[("", _NEXT)]))
    meta, n = outcome.histories["p_fedavg"].meta, outcome.numbers
    made = (
        f"{n['clients']} banks, {n['rounds']} rounds, {n['seeds']} seeds, five banks per round, five local "
        f"steps of 32 applicants each. Residual of the exact points: {n['stable_residual']:.1e} (stable), "
        f"{n['optimal_residual']:.1e} (optimal). performative {meta['performative']}, jax {meta['jax']}, "
        f"{meta['dtype']} on {meta['device']}, {n['seconds']:.0f} s. Written by `performative demo`."
    )
    top = f'<h1>{_TITLE}</h1>\n<p class="lead">{_LEAD}</p>'
    cards = "\n".join(section.page(drawn) for section in sections)
    return document(_TITLE, f"{top}\n{cards}\n<footer>{escape(made)}</footer>")

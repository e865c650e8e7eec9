"""Tables of an assessment, for terminals and pages."""

from typing import Any

from performative.assess.assessed import AbstractAssessment
from performative.assess.words import answers_of
from performative.report.section import Cell, Table

NAMES = {"static": "trained once", "stable": "stable point", "optimal": "optimal point"}


def answers_table(found: AbstractAssessment) -> Table:
    return Table(("question", "answer", "because"), answers_of(found))


def strengths_table(found: AbstractAssessment) -> Table:
    """One row per strength: decisions, retraining, accuracy of the models once deployed."""
    said = {True: "yes", False: "no", None: "unknown"}
    rows: list[list[Cell]] = []
    for one in found.scenarios:
        caught = [one.models[name].caught if name in one.models else None for name in NAMES]
        risks = [f"{one.models[name].risk:.4f}" if name in one.models else "-" for name in NAMES]
        here = "*" if one.strength == found.strength else ""
        rows.append(
            [f"{one.strength:g}{here}", _percent(one.changed), said[one.settles],
             "-" if one.factor is None else "0" if one.factor < 1e-9 else f"{one.factor:.2g}",
             *zip(map(_percent, caught), risks, strict=True)]
        )  # fmt: skip
    head = ("strength", "decisions that flip", "retraining settles", "error left", *NAMES.values())
    note = (
        "Strength: how far people move a column (in spreads) per unit of the model's slope; * marks the assumed one. "
        "Error left: factor by which one retraining near the stable point shrinks an error. The last three: share of "
        "label 1 that is caught, and the mean loss with its penalty (small or in parentheses), once deployed."
    )
    return Table(head, rows, [note])


def features_table(found: AbstractAssessment) -> Table:
    """Coefficients by column, in the units of the table."""
    rows: list[list[Cell]] = [
        [one.name, _percent(one.share) if one.movable else "-", f"{one.moves:+.3g}" if one.movable else "-",
         f"{one.per_spread:+.3g}", *("-" if value is None else f"{value:+.3g}"
                                     for value in (one.static, one.stable, one.optimal))]
        for one in found.features
    ]  # fmt: skip
    head = ("column", "share of the response", "moved by", "per spread", *NAMES.values())
    note = (
        "Log-odds of label 1. Per spread: the model trained once, per spread of the column; the last three: per unit "
        "of the column. Moved by: how far people who respond to the model trained once move it, in its own unit."
    )
    return Table(head, rows, [note])


def groups_table(found: AbstractAssessment) -> Table | None:
    """Refusals by group and model."""
    if not found.scenario.groups:
        return None
    rows: list[list[Cell]] = [
        [one.group, NAMES[one.model], f"{one.people:,}", _percent(one.refused), _percent(one.wrongly),
         f"{100 * one.rise:+.1f} ± {100 * one.error:.1f}"]
        for one in found.scenario.groups
    ]  # fmt: skip
    head = ("group", "model", "people", "refused", "wrongly refused", "change, points")
    note = (
        "Wrongly: of people with label 0. Change: relative to the model trained once before anybody responds, with "
        "its standard error over people."
    )
    return Table(head, rows, [note])


def lead(found: AbstractAssessment) -> str:
    """What was assessed, in two sentences."""
    banks = "one client" if found.clients == 1 else f"{found.clients} clients"
    whom = "everyone" if found.who == "everyone" else f"only people with label {found.positive!r}"
    return (
        f"{found.rows:,} people of {banks} in {found.name}; they try to avoid {found.label} = {found.positive!r}, and "
        f"{_percent(found.share)} are refused. Assumption: {whom} can change {_some(found.strategic)}, with strength "
        f"{found.strength:g}; since the true strength is unknown, results for a range around it follow below."
    )


def text(found: AbstractAssessment) -> str:
    """Answers and tables as plain text."""
    said = [lead(found)]
    said += [f"{question} {short}.\n  {why}" for question, short, why in answers_of(found)]
    tables = [strengths_table(found), features_table(found), groups_table(found)]
    said += [table.text() for table in tables if table is not None]
    return "\n\n".join([*said, *(["\n".join(f"Note: {note}" for note in found.notes)] if found.notes else [])])


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _percent(value: Any) -> str:
    return "-" if value is None or value != value else f"{100 * value:.1f}%"

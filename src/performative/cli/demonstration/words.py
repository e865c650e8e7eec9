"""The demo's three answers in plain words, for a terminal and for a page."""

from typing import Any

from performative.cli.demonstration.outcome import Outcome
from performative.findings import Words
from performative.report.section import Cell, Table

QUESTIONS = (
    "Does deployment change my data?",
    "Does retraining settle?",
    "What does ignoring it cost?",
)


def answers(outcome: Outcome) -> list[tuple[str, str, str]]:
    """(question, the answer in a few words, why) for each of the three questions."""
    said = [[words.say(one) for words in (SHORT, WORDS)] for one in outcome.findings]
    return [(question, short, why) for question, (short, why) in zip(QUESTIONS, said, strict=True)]


def _change(feature_shift: float, decisions_changed: float, expected: float, deployed: float, **_: Any) -> str:
    return (
        "Once the static model is deployed, applicants shift the features they can change by "
        f"{feature_shift:.2f} standard deviations on average. The model then decides differently for "
        f"{100 * decisions_changed:.0f}% of the same people, and its accuracy is {100 * deployed:.1f}% instead of "
        f"the expected {100 * expected:.1f}%."
    )


def _settle(
    distance_start: float, distance_end: float, static_distance: float, seeds: int, retrainings: int, left: float,
    contraction: float, **_: Any,
) -> str:  # fmt: skip
    return (
        f"P-FedAvg starts {distance_start:.2f} away from the exact stable point and ends {distance_end:.3f} away (mean "
        f"over {seeds} seeds); the static model stays {static_distance:.2f} away. {retrainings} exact retrainings in a "
        f"row end {left:.3f} away; near the stable point each leaves {100 * contraction:.0f}% of the gap: "
        + ("below 100%, so it settles." if contraction < 1 else "100% or more, so it does not.")
    )


def _cost(lost: float, gained: float, further: float, risks: list[float]) -> str:
    static, stable, optimal = risks
    return (
        f"Deployed, the static model is {100 * lost:.1f} points less accurate than expected. Retraining as the "
        f"data shift (P-FedAvg) recovers {100 * gained:.1f} points; anticipating the response (the optimal point) "
        f"adds {100 * further:.1f} more. Risk after deployment: {static:.3f} static, {stable:.3f} stable, "
        f"{optimal:.3f} optimal."
    )


WORDS = Words({"answer.change": _change, "answer.settle": _settle, "answer.cost": _cost})
SHORT = Words(
    {
        "answer.change": lambda changes, decisions_changed, **_: (
            f"Yes: {100 * decisions_changed:.0f}% of decisions flip" if changes else "Hardly"
        ),
        "answer.settle": lambda settles, covered, **_: f"Yes: {100 * covered:.0f}% of the way" if settles else "No",
        "answer.cost": lambda gained, **_: f"{100 * gained:.1f} points of accuracy",
    }
)


def models(outcome: Outcome) -> Table:
    """A table comparing the models."""
    rows: list[list[Cell]] = [
        [(one.name, one.how), f"{100 * one.expected_accuracy:.1f}%", f"{100 * one.deployed_accuracy:.1f}%",
         f"{one.expected_risk:.3f}", f"{one.deployed_risk:.3f}"]
        for one in outcome.models
    ]  # fmt: skip
    small = (
        "Expected: on the data the model was trained on. Deployed: on the data it induces. For a stable point the two "
        "are the same; that makes it stable."
    )
    return Table(("model", "accuracy expected", "deployed", "risk expected", "deployed"), rows, [small])


def terminal_tables(outcome: Outcome) -> list[Any]:
    """The answers and the models, for rich."""
    from rich import table
    from rich.text import Text

    asked = table.Table(show_edge=False, pad_edge=False, show_lines=True)
    for column, widest in (("question", 17), ("answer", 17), ("because", 62)):
        asked.add_column(column, max_width=widest)
    for question, short, why in answers(outcome):
        asked.add_row(question, Text(short, style="bold"), why)
    return [asked, models(outcome).terminal()]

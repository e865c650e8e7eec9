"""The demo's three answers in plain words, for a terminal and for a page."""

from typing import Any

from performative.cli.demonstration.outcome import Model, Outcome

QUESTIONS = (
    "Does deployment change my data?",
    "Does retraining settle?",
    "What does ignoring it cost?",
)


def answers(outcome: Outcome) -> list[tuple[str, str, str]]:
    """(question, the answer in a few words, why) for each of the three questions."""
    said = [_does_it_change(outcome), _does_it_settle(outcome), _what_does_it_cost(outcome)]
    # No line break between a number and its sign.
    words = [[text.replace(" %", "\u00a0%") for text in pair] for pair in said]
    return [(question, short, why) for question, (short, why) in zip(QUESTIONS, words, strict=True)]


def _does_it_change(outcome: Outcome) -> tuple[str, str]:
    n, static = outcome.numbers, outcome.models[0]
    flipped = f"{100 * n['decisions_changed']:.0f} %"
    short = f"Yes: {flipped} of decisions flip" if n["decisions_changed"] > 0.01 else "Hardly"
    expected, deployed = (f"{100 * a:.1f} %" for a in (static.expected_accuracy, static.deployed_accuracy))
    return short, (
        "Once the static model is in use, applicants move the features that they can change by "
        f"{n['feature_shift']:.2f} standard deviations on average. The model then decides differently on "
        f"{flipped} of the same people, and its accuracy is {deployed} instead of the expected {expected}."
    )


def _does_it_settle(outcome: Outcome) -> tuple[str, str]:
    n = outcome.numbers
    covered = 100 * (1 - n["distance_end"] / n["distance_start"])
    attracted, gaps = n["contraction"] < 1, n["retraining"]
    short = f"Yes: {covered:.0f} % of the way" if attracted and covered > 50 else "No"
    return short, (
        f"P-FedAvg starts {n['distance_start']:.2f} away from the exact stable point and ends "
        f"{n['distance_end']:.3f} away (mean over {n['seeds']} seeds); the static model stays "
        f"{n['static_distance']:.2f} away. {len(gaps) - 1} exact retrainings in a row end {gaps[-1]:.3f} away; near "
        f"the stable point each leaves {100 * n['contraction']:.0f} % of the gap: "
        + ("below 100 %, so it settles." if attracted else "100 % or more, so it does not.")
    )


def _what_does_it_cost(outcome: Outcome) -> tuple[str, str]:
    static, learnt, stable, optimal = outcome.models
    lost = 100 * (static.expected_accuracy - static.deployed_accuracy)
    gained = 100 * (learnt.deployed_accuracy - static.deployed_accuracy)
    further = 100 * (optimal.deployed_accuracy - stable.deployed_accuracy)
    return f"{gained:.1f} points of accuracy", (
        f"Deployed, the static model is {lost:.1f} points less accurate than expected. Retraining as the "
        f"data move (P-FedAvg) wins back {gained:.1f} points; foreseeing the answer (the optimal point) is "
        f"worth {further:.1f} more. Risk once deployed: {static.deployed_risk:.3f} static, "
        f"{stable.deployed_risk:.3f} stable, {optimal.deployed_risk:.3f} optimal."
    )


def model_cells(model: Model) -> list[str]:
    """Accuracy expected and deployed, risk expected and deployed."""
    accuracies = [f"{100 * value:.1f} %" for value in (model.expected_accuracy, model.deployed_accuracy)]
    return [*accuracies, f"{model.expected_risk:.3f}", f"{model.deployed_risk:.3f}"]


def terminal_tables(outcome: Outcome) -> list[Any]:
    """The answers and the models, for rich."""
    from rich.table import Table
    from rich.text import Text

    asked = Table(show_edge=False, pad_edge=False, show_lines=True)
    for column, widest in (("question", 17), ("answer", 17), ("because", 62)):
        asked.add_column(column, max_width=widest)
    for question, short, why in answers(outcome):
        asked.add_row(question, Text(short, style="bold"), why)
    models = Table(show_edge=False, pad_edge=False)
    models.add_column("model")
    for column in ("accuracy expected", "deployed", "risk expected", "deployed"):
        models.add_column(column, justify="right")
    for model in outcome.models:
        models.add_row(model.name, *model_cells(model))
    return [asked, models]

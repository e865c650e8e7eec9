"""The data of the demo's three figures."""

import numpy as np

from performative.cli.demonstration.outcome import Outcome
from performative.report.curves import curve, digits
from performative.report.figure import Mark, Series, View


def pictures(outcome: Outcome) -> tuple[View, View, View]:
    """Scores before and after deployment, distances by round, accuracy after deployment."""
    return _scores(outcome), _distances(outcome), _cost(outcome)


def _scores(outcome: Outcome) -> View:
    low, high = np.quantile(np.concatenate(outcome.scores), (0.001, 0.999))
    edges = np.linspace(low, high, 45)
    series = []
    for values, name in zip(outcome.scores, ("before deployment", "after deployment"), strict=True):
        share = 100 * np.histogram(values, edges)[0] / len(values)
        steps = np.concatenate([[0.0], np.repeat(share, 2), [0.0]])
        series.append(Series(name, digits(steps), digits(np.repeat(edges, 2)), filled=True))
    return View(
        "scores", "score by the static model (log-odds of default)", "applicants (%)", series,
        marks=[Mark("rejected →", 0.0, upright=True)],
        description="Histograms of the static model's scores before and after deployment, which shifts them left.",
    )  # fmt: skip


def _distances(outcome: Outcome) -> View:
    names = {"fedavg": "static (FedAvg)", "p_fedavg": "retrained (P-FedAvg)"}
    series = [
        curve(name, outcome.histories[kind].rounds, outcome.histories[kind]["distance_to_stable"])
        for kind, name in names.items()
    ]
    return View(
        "distances", f"round (line: mean of {outcome.numbers['seeds']} seeds, band: middle 80%)",
        "distance to the exact stable point", series, log="y",
        description="Distance to the exact stable point by round: the static learner stays away, P-FedAvg gets close.",
    )  # fmt: skip


def _cost(outcome: Outcome) -> View:
    models, at = outcome.models, list(range(len(outcome.models)))
    expected, deployed = (
        digits(100 * getattr(model, f"{when}_accuracy") for model in models) for when in ("expected", "deployed")
    )
    spans = [model.accuracy_range or (model.deployed_accuracy,) * 2 for model in models]
    low, high = (digits(100 * span[end] for span in spans) for end in (0, 1))
    labels = [f"{value:.1f}%" for value in deployed]
    series = [
        Series("expected", expected, at=at, colors=at, open=[True] * len(at), size=15),
        Series("after deployment", deployed, at=at, colors=at, low=low, high=high, thick=5, labels=labels, size=15),
    ]
    return View(
        "cost", "", "accuracy (%)", series, kind="rows", rows=[model.name.replace(" (", "\n(") for model in models],
        description="Accuracy after deployment: the static model, P-FedAvg, the stable point and the optimal point.",
    )  # fmt: skip

"""The demo's three panels, in one picture or one by one, for light and for dark paper."""

from collections.abc import Callable
from typing import Any

import numpy as np

from performative.cli.demonstration.outcome import Outcome
from performative.cli.demonstration.words import QUESTIONS
from performative.plotting import COLORS, plot_history
from performative.report.theme import saved, shade, theme

_BLUE, _ORANGE, _GREEN, _PURPLE = COLORS[:4]


def overview(outcome: Outcome) -> bytes:
    """All three panels side by side, as PNG."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(theme()):
        figure = Figure(figsize=(13.0, 4.2), layout="constrained", dpi=150)
        for ax, draw in zip(figure.subplots(1, 3), PANELS, strict=True):
            draw(ax, outcome, shade(False))
        for ax, question in zip(figure.axes, QUESTIONS, strict=True):
            ax.set_title(question, loc="left", fontweight="bold", fontsize=11)
        return saved(figure, "png")


def panels(outcome: Outcome, dark: bool) -> list[bytes]:
    """Each panel on its own, as SVG."""
    import matplotlib
    from matplotlib.figure import Figure

    made = []
    with matplotlib.rc_context(theme(dark)):
        for draw in PANELS:
            figure = Figure(figsize=(4.7, 3.2), layout="constrained", facecolor="none")
            draw(figure.subplots(), outcome, shade(dark))
            made.append(saved(figure, "svg"))
    return made


def _draw_scores(ax: Any, outcome: Outcome, shade: Callable[[str], str]) -> None:
    before, after = outcome.scores
    low, high = np.quantile(np.concatenate([before, after]), (0.001, 0.999))
    edges = np.linspace(low, high, 45)
    for values, color, label in ((before, _BLUE, "before deployment"), (after, _ORANGE, "after deployment")):
        ax.hist(values, edges, color=shade(color), alpha=0.3, density=True)
        ax.hist(values, edges, color=shade(color), histtype="step", linewidth=1.6, density=True, label=label)
    ax.axvline(0.0, color=ax.xaxis.label.get_color(), linewidth=1.0, linestyle="--")
    ax.annotate(
        "refused →",
        (0.0, 1.0),
        xytext=(5, -4),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        va="top",
    )
    ax.set_xlabel("score by the static model (log-odds of default)")
    ax.set_ylabel("share of applicants")
    ax.set_yticks([])
    ax.legend(loc="upper left")


def _draw_distances(ax: Any, outcome: Outcome, shade: Callable[[str], str]) -> None:
    ax.set_prop_cycle(color=[shade(_BLUE), shade(_ORANGE)])
    plot_history(outcome.histories["fedavg"], "distance_to_stable", ax, "static (FedAvg)")
    plot_history(outcome.histories["p_fedavg"], "distance_to_stable", ax, "retrained (P-FedAvg)")
    ax.set_ylabel("distance to the exact stable point")
    ax.set_xlabel(f"round (line: mean of {outcome.numbers['seeds']} seeds, band: middle 80 %)")
    ax.legend(loc="center right")


def _draw_cost(ax: Any, outcome: Outcome, shade: Callable[[str], str]) -> None:
    colors = (_BLUE, _ORANGE, _GREEN, _PURPLE)
    for row, (model, color) in enumerate(zip(outcome.models, colors, strict=True)):
        here = shade(color)
        expected, deployed = 100 * model.expected_accuracy, 100 * model.deployed_accuracy
        if abs(expected - deployed) > 0.05:
            arrow = {"arrowstyle": "-|>", "color": here, "linewidth": 1.6, "shrinkA": 5, "shrinkB": 5}
            ax.annotate("", (deployed, row), (expected, row), arrowprops=arrow)
            ax.plot(expected, row, "o", markersize=9, markerfacecolor="none", color=here)
            ax.annotate("expected", (expected, row), xytext=(0, 9), textcoords="offset points", ha="center")
        if model.accuracy_range is not None:
            low, high = (100 * value for value in model.accuracy_range)
            ax.plot([low, high], [row, row], color=here, linewidth=5, alpha=0.35, solid_capstyle="round")
        ax.plot(deployed, row, "o", markersize=9, color=here)
        ax.annotate(f"{deployed:.1f} %", (deployed, row), xytext=(0, 9), textcoords="offset points", ha="center")
    ax.set_yticks(range(len(outcome.models)), [model.name.replace(" (", "\n(") for model in outcome.models])
    ax.set_ylim(len(outcome.models) - 0.5, -0.6)
    ax.margins(x=0.16)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("accuracy once deployed (%)")


PANELS = (_draw_scores, _draw_distances, _draw_cost)

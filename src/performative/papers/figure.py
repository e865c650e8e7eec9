"""The figure of an experiment: one set of axes per panel, with mean and spread over repeats."""

import math
import textwrap
from typing import Any

from performative.papers.catalog import Panel
from performative.papers.outcome import Outcome


def draw(panels: tuple[Panel, ...], outcome: Outcome, title: str, place: str) -> Any:
    """Return a matplotlib figure. Bars take the color of the line of the same name, if any."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from performative.report import drawing
    from performative.report.results import views_of
    from performative.report.theme import theme

    for panel in panels:
        if panel.data not in outcome.data:
            raise KeyError(f"panel {panel.data!r}: the experiment returns {sorted(outcome.data)}")
    columns = min(len(panels), 3)
    rows, width = math.ceil(len(panels) / columns), 58 * columns
    with rc_context(theme(False, **{"legend.fontsize": 8.0})):
        figure = Figure(figsize=(max(6.4, 4.6 * columns), 3.9 * rows + 0.4), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        views = views_of([panel.model_dump() for panel in panels], outcome.data, outcome.numbers)
        for ax, (name, view) in zip(axes, views, strict=False):
            drawing.draw(ax, view, above=False)
            ax.set_title(name)
        for ax in axes[len(panels) :]:
            ax.remove()
        whole = f"{title}  ({place})"
        told = [whole] if len(whole) <= width else [*textwrap.wrap(title, width), f"({place})"]
        figure.suptitle("\n".join(told), fontsize=12)
    return figure

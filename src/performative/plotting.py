"""Plots of histories and partitions. Outside notebooks they do not use pyplot: no display is needed and no global state
changes. In a notebook figures are created by pyplot, which shows them at the end of the cell."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from performative._base.arguments import checked
from performative._base.checks import nearest
from performative._base.notebook import in_notebook
from performative.partition import counts_of

__all__ = ["plot_history", "plot_partition"]

# Okabe and Ito's colors, distinguishable under all common forms of color blindness; black comes last.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_HATCHES = ("", "////", "....")
# The band covers the middle four fifths of the repeats. Quantiles stay positive, so it works on log axes too.
BAND = (0.1, 0.9)
_FIRST_CHOICE = ("distance_to_stable", "performative_risk", "consensus")
# Labels for names that are less clear by themselves.
LABELS = {
    "distance_to_stable": "distance to the stable point",
    "distance_to_optimal": "distance to the optimal point",
    "performative_risk": "performative risk",
    "decoupled_risk": "decoupled risk",
    "risk_spread": "spread of the risk across clients",
    "consensus": "consensus error",
    "time": "simulated time",
    "uploads": "uploads",
    "samples": "samples drawn",
    "kept": "samples kept",
    "communications": "communications",
    "clipped": "gradients clipped",
    "rejected": "gradients rejected (non-finite)",
    "clipped_updates": "updates clipped",
    "rejected_updates": "updates rejected (non-finite)",
    "nonfinite_updates": "updates dropped (non-finite)",
    "epsilon": "epsilon spent",
}
# Never running totals, whatever their values look like.
_LEVELS = (*_FIRST_CHOICE, "distance_to_optimal", "decoupled_risk", "risk_spread", "epsilon")
# Below this many decades a logarithmic axis has ticks within each.
_FEW_DECADES = 3
# Running totals that can serve as the horizontal axis.
COSTS = ("time", "uploads", "samples", "communications")


@runtime_checkable
class Recorded(Protocol):
    """What a plot reads from a `pf.History`."""

    @property
    def rounds(self) -> np.ndarray: ...

    @property
    def records(self) -> Mapping[str, np.ndarray]: ...

    @property
    def risk_rounds(self) -> np.ndarray: ...

    @property
    def risks(self) -> Mapping[str, np.ndarray]: ...

    @property
    def meta(self) -> dict[str, Any]: ...

    def __getitem__(self, name: str) -> np.ndarray: ...


@checked
def plot_history(history: Recorded, quantity: str | None = None, ax: Any = None, label: str | None = None) -> Any:
    """Plot the mean over repeats of one recorded quantity against rounds, with a band of the middle 80%.

    Args:
        quantity: a name in `history.records` or `history.risks`; None for distance_to_stable if recorded, else
            performative_risk, else consensus
        ax: matplotlib axes to draw into; None makes a figure of its own (`ax.figure.savefig(...)`)
        label: the line's name in the legend; None for the algorithm's name

    Distances and other positive quantities that span more than a factor of ten get a logarithmic axis.
    """
    if not (hasattr(history, "records") and hasattr(history, "risks")):
        raise ValueError(
            f"plot_history: history must be a History, as pf.run returns it; got {type(history).__name__}."
        )
    ax = axes_of("plot_history", ax)
    name = pick_quantity(history, quantity)
    values = np.asarray(history[name], np.float64)
    rounds = history.risk_rounds if name in history.risks else history.rounds
    finite = np.where(np.isfinite(values), values, np.nan)
    kept = ~np.all(np.isnan(finite), axis=0)
    finite, rounds = finite[:, kept], np.asarray(rounds)[kept]
    (line,) = ax.plot(rounds, np.nanmean(finite, axis=0), label=label or history.meta.get("algorithm"), zorder=3)
    if len(finite) > 1:
        low, high = np.nanquantile(finite, BAND, axis=0)
        ax.fill_between(rounds, low, high, color=line.get_color(), alpha=0.2, linewidth=0, zorder=2)
    if wants_log(name, values, history):
        ax.set_yscale("log")
        whole_numbers(ax.yaxis)
    ax.set_xlabel("round")
    ax.set_ylabel(label_of(name, history))
    if len(ax.get_lines()) > 1:
        ax.legend()
    return ax


def whole_numbers(axis: Any) -> None:
    """Plain tick labels on a logarithmic axis, 20 and 0.05, at 1, 2 and 5 of each decade if there are few decades."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    low, high = axis.get_data_interval()
    few = 0 < low < high and np.log10(high / low) < _FEW_DECADES
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def axes_of(owner: str, ax: Any, size: tuple[float, float] = (6.4, 4.0)) -> Any:
    """The given axes, or those of a new figure."""
    if ax is None:
        if in_notebook():
            from matplotlib import pyplot

            return pyplot.subplots(figsize=size, layout="constrained")[1]
        from matplotlib.figure import Figure

        return Figure(figsize=size, layout="constrained").subplots()
    if not hasattr(ax, "get_lines"):
        raise ValueError(f"{owner}: ax must be matplotlib axes, or None for a new figure; got {ax!r}.")
    return ax


@checked
def plot_partition(labels: Any, parts: Any, ax: Any = None) -> Any:
    """Plot one bar per client with its number of rows, stacked by label.

    Args:
        labels: one label per row of the table
        parts: one array of row numbers per client, as returned by `performative.partition`
        ax: matplotlib axes to draw into; None makes a figure of its own (`ax.figure.savefig(...)`)

    Up to 21 labels are distinguished by color and hatching; more by a color scale in sorted order.
    """
    held = counts_of(labels, parts)
    kinds = np.unique(np.asarray(labels))
    ax = axes_of("plot_partition", ax)
    looks: list[tuple[Any, str]]
    if few := len(kinds) <= len(COLORS) * len(_HATCHES):
        looks = [(COLORS[k % len(COLORS)], _HATCHES[k // len(COLORS)]) for k in range(len(kinds))]
    else:
        from matplotlib import colormaps

        looks = [(colormaps["viridis"](k / (len(kinds) - 1)), "") for k in range(len(kinds))]
    clients, floor = np.arange(len(held)), np.zeros(len(held), int)
    edge = {"edgecolor": "white", "linewidth": 0.5 if len(held) <= 50 else 0.0}
    for kind, (color, hatch) in enumerate(looks):
        label = str(kinds[kind]) if few else None
        ax.bar(clients, held[:, kind], 0.9, floor, color=color, hatch=hatch, label=label, **edge)
        floor = floor + held[:, kind]
    ax.set_xlabel("client")
    ax.set_ylabel("rows")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.margins(x=0.01)
    ax.set_ylim(0, 1.05 * max(floor.max(), 1))
    if few:
        # In the order of the bars: the last label is on top.
        ax.legend(title="label", reverse=True, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    else:
        _color_scale(ax, kinds)
    return ax


def _color_scale(ax: Any, kinds: np.ndarray) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    scale = ax.figure.colorbar(ScalarMappable(Normalize(0, len(kinds) - 1), "viridis"), ax=ax, label="label")
    at = np.unique(np.linspace(0, len(kinds) - 1, 6).round().astype(int))
    scale.set_ticks(at, labels=[str(kinds[k]) for k in at])


def pick_quantity(history: Recorded, quantity: str | None) -> str:
    there = {**history.records, **history.risks}
    if quantity is None:
        quantity = next((name for name in _FIRST_CHOICE if name in there), None)
        if quantity is None:
            raise ValueError(f"quantity: none of {', '.join(_FIRST_CHOICE)} was recorded; choose from {sorted(there)}.")
    if quantity not in there:
        hint, recorded = nearest(quantity, there), ", ".join(sorted(there))
        told = "" if recorded in hint else f" Recorded: {recorded}."
        raise ValueError(f"quantity={quantity!r} was not recorded.{hint}{told}")
    return quantity


def label_of(name: str, history: Recorded | None = None) -> str:
    """The label of a quantity; for custom metrics the label and unit in `history`."""
    facts = {} if history is None else history.meta.get("metrics", {}).get(name, {})
    words = facts.get("label") or LABELS.get(name, name.replace("_", " "))
    return f"{words} [{facts['unit']}]" if facts.get("unit") else words


def is_total(name: str, values: np.ndarray, history: Recorded | None = None) -> bool:
    """Whether it increases from zero in every repeat, as a sum over rounds does; for custom metrics by kind."""
    if history is not None and name in history.meta.get("metrics", {}):
        return bool(history.meta["metrics"][name]["kind"] == "total")
    finite = np.where(np.isfinite(values), values, 0.0)
    counts = bool(np.all(values[:, 0] == 0) and np.all(np.diff(finite, axis=1) >= 0))
    return name in COSTS or (counts and name not in _LEVELS)


def wants_log(name: str, values: np.ndarray, history: Recorded | None = None) -> bool:
    """Whether it is positive and spans more than a factor of ten; running totals, which always grow, are excluded."""
    finite = values[np.isfinite(values)]
    if not finite.size or finite.min() <= 0 or is_total(name, values, history) or name == "epsilon":
        return False
    return name.startswith("distance") or bool(finite.max() > 10 * finite.min())

"""Summary of a finished run."""

from typing import TYPE_CHECKING, Any

import numpy as np

from performative.cli.output import grid
from performative.plotting import LABELS

if TYPE_CHECKING:
    from performative.history import History

# The terminal omits two counts; pages show them.
_SHOWN = {name: label for name, label in LABELS.items() if name not in ("uploads", "nonfinite_updates")}


def mean_interval(values: Any, level: float = 0.95) -> dict[str, float | None]:
    """Mean and its Student t interval over repeats; no interval for a single repeat.

    mean +- t_{n-1} sd / sqrt(n)
    """
    from scipy.special import stdtrit

    values = np.asarray(values, np.float64)
    mean, count = float(np.mean(values)), len(values)
    if count < 2 or not np.all(np.isfinite(values)):
        return {"mean": mean, "low": None, "high": None}
    half = float(stdtrit(count - 1, 0.5 + level / 2) * np.std(values, ddof=1) / np.sqrt(count))
    return {"mean": mean, "low": mean - half, "high": mean + half}


def summarize(history: "History") -> dict[str, Any]:
    """What --json prints for a run."""
    there = {**history.records, **history.risks}
    final = {name: mean_interval(values[:, -1]) for name, values in there.items() if values.shape[1]}
    return {
        "status": history.status,
        "rounds": int(history.rounds[-1]),
        "repeats": len(history.stopped_at),
        "diverged": int(np.sum(history.stopped_at >= 0)),
        "final": final,
        **{name: value for name, value in history.meta.items() if name != "config"},
    }


def table(summary: dict[str, Any], title: str) -> Any:
    """The same for people."""
    columns = f"after {summary['rounds']} rounds", "mean", f"95% interval ({summary['repeats']} repeats)"
    made = grid(*columns, title=title, title_justify="left", title_style="bold")
    own = {name: facts["label"] or name.replace("_", " ") for name, facts in summary.get("metrics", {}).items()}
    labels = _SHOWN | own
    for name in [n for n in labels if n in summary["final"]]:
        value = summary["final"][name]
        interval = "" if value["low"] is None else f"{value['low']:.4g} .. {value['high']:.4g}"
        made.add_row(labels[name], f"{value['mean']:.4g}", interval)
    return made


def footer(summary: dict[str, Any]) -> str:
    """One line on the outcome."""
    return (
        f"{summary['status']} in {summary['seconds']:.2f} s: {summary['algorithm']}, "
        f"executor {summary['executor']}, {summary['dtype']} on {summary['device']}, seed {summary['seed']}"
    )


def privacy_lines(facts: dict[str, Any]) -> list[str]:
    """The privacy guarantee in words."""
    if facts["why"]:
        return [f"privacy: no guarantee (epsilon is infinite): {'; '.join(facts['why'])}."]
    neighbors = facts.get("neighbors", facts.get("neighbours", "")).replace("_", " ")
    lines = [
        f"privacy: ({facts['epsilon']:.4g}, {facts['delta']:.2g})-DP for each {facts['unit']} ({neighbors}), "
        f"every published model included; by {facts['method']}."
    ]
    if facts.get("on_word"):
        lines.append(f"certified on the author's word, not checked here: {', '.join(facts['on_word'])}.")
    lines += [f"NOT covered: {told}." for told in facts.get("not_covered", ())]
    lines += [f"assumes: {assumed}." for assumed in facts["assumes"]]
    lines.append(f"noise: {facts['noise']}.")
    return [*lines, f"stopped: {facts['stopped']}."] if facts["stopped"] else lines

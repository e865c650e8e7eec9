"""The page of one run."""

from html import escape
from typing import Any

import jax
import numpy as np

from performative.history import History
from performative.plotting import is_total, label_of, wants_log
from performative.report.curves import MOST_POINTS, curve, digits, kept, thinning, with_costs
from performative.report.figure import Series, View
from performative.report.interactive import Plots, card, details, facts, number, page
from performative.report.quantities import costs, groups, recorded
from performative.report.section import Cell, Table

# Models with up to this many parameters are drawn one by one; for larger ones, their norm.
_MOST_PARAMETERS = 8
Found = dict[str, tuple[np.ndarray, np.ndarray]]
_BAND = "Line: mean over repeats; band: the middle 80% of them."


def run_page(history: History, title: str | None = None) -> bytes:
    """What was run, every recorded quantity by round, final values, participation, and privacy."""
    plots, meta = Plots(), history.meta
    name = str(meta.get("algorithm", "a run"))
    found = recorded(history)
    several, spent = history.repeats > 1, costs(found)

    def line(one: str) -> Series:
        made = curve(name, *found[one])
        return made if is_total(one, found[one][1], history) else with_costs(made, spent)

    shown = []
    for head, names in groups(found, history).items():
        views = [
            View(
                label_of(one, history), "round", label_of(one, history), [line(one)],
                log="y" if wants_log(one, found[one][1], history) else "",
            )
            for one in names
        ]  # fmt: skip
        drawn = plots.add(views, f"{head} by round", pick="Quantity", caption=_BAND if several else "")
        shown.append(card(head, drawn))
    drawn = plots.add(_model(history), "The model by round", caption=_BAND if several else "")
    shown.append(card("The model", drawn))
    bad = int(np.sum(history.stopped_at >= 0))
    fate = f"{bad} of {history.repeats} repeats diverged" if bad else history.status
    repeats = f"{history.repeats:,} repeat{'' if history.repeats == 1 else 's'}"
    lead = f"{name}: {int(history.rounds[-1])} rounds, {repeats}, {fate}."
    ordered = {one: found[one] for names in groups(found, history).values() for one in names}
    parts = (
        _what(history, fate),
        *shown,
        _final(ordered, history),
        _who(history, plots),
        _privacy(meta.get("privacy")),
    )
    body = "\n".join(part for part in parts if part)
    footer = f"performative {meta.get('performative', '?')}. {thinning()}"
    return page(title or f"A run of {name}", lead, body, plots, footer)


def _what(history: History, fate: str) -> str:
    meta, first = history.meta, history.stopped_at[history.stopped_at >= 0]
    rows = [
        ("algorithm", meta.get("algorithm")),
        ("status", fate),
        ("first non-finite in round", int(first.min()) if len(first) else None),
        ("rounds", int(history.rounds[-1])),
        *how_made(history, meta.get("seconds")),
    ]
    config = escape("\n".join(config_lines(meta["config"]))) if meta.get("config") else ""
    return card("What was run", facts(rows), details("Full algorithm", f"<pre>{config}</pre>") if config else "")


def how_made(history: History, seconds: float | None) -> list[tuple[str, Any]]:
    """Names and values for `facts`, of one run or of those of a sweep."""
    meta = history.meta
    return [
        ("repeats", history.repeats),
        ("clients", len(history.weights)),
        ("seed", meta.get("seed")),
        ("precision", meta.get("dtype")),
        ("seconds", None if seconds is None else number(seconds)),
        *((name, meta.get(name)) for name in ("executor", "device", "performative", "jax", "python")),
    ]


def config_lines(config: Any, name: str = "", depth: int = 0) -> list[str]:
    """A description (see `describe`) as indented lines, each part with its own name."""
    pad, lead = "  " * depth, f"{name}: " if name else ""
    if isinstance(config, dict):
        kind = config.get("part", config.get("function", ""))
        lines = [f"{pad}{lead}{kind}".rstrip()] if name or kind else []
        for key, value in config.items():
            if key not in ("part", "function", "code") and value not in ({}, [], None):
                lines += config_lines(value, key, depth + bool(lines))
        return lines
    return [f"{pad}{lead}{config}"]


def _model(history: History) -> list[View]:
    """The parameters by round, or the model's norm if there are many; nothing if only the last model is kept."""
    leaves = jax.tree_util.tree_leaves_with_path(history.theta)
    if not leaves or any(leaf.shape[1] != len(history.rounds) or len(history.rounds) < 2 for _, leaf in leaves):
        return []
    flat = {}
    for path, leaf in leaves:
        name = ".".join(["theta", *(jax.tree_util.keystr((step,), simple=True) for step in path)])
        flat[name] = np.asarray(leaf, np.float64).reshape(*leaf.shape[:2], -1)
    if sum(values.shape[2] for values in flat.values()) > _MOST_PARAMETERS:
        norm = np.sqrt(sum((values**2).sum(axis=2) for values in flat.values()))
        return [View("norm", "round", "norm of theta", [curve("norm of theta", history.rounds, norm)])]
    series = [
        curve(name if values.shape[2] == 1 else f"{name}[{k}]", history.rounds, values[:, :, k])
        for name, values in flat.items()
        for k in range(values.shape[2])
    ]
    return [View("parameters", "round", "theta", series)]


def _final(found: dict[str, tuple[np.ndarray, np.ndarray]], history: History) -> str:
    rows: list[list[Cell]] = []
    for name, (rounds, values) in found.items():
        last = values[:, -1]
        good = last[np.isfinite(last)]
        if not good.size:
            continue
        low, high = np.quantile(good, (0.1, 0.9))
        deviation = number(float(np.std(good, ddof=1))) if good.size > 1 else "–"
        middle = f"{number(float(low))} to {number(float(high))}" if good.size > 1 else "–"
        at = f"round {int(rounds[-1])}" + (f"; {good.size} of {last.size} repeats" if good.size < last.size else "")
        rows.append([(label_of(name, history), at), number(float(np.mean(good))), deviation, middle])
    head = ("at the end", "mean", "standard deviation", "middle 80%")
    return card("Final values over repeats", Table(head, rows).html())


def _who(history: History, plots: Plots) -> str:
    head, weights = "Participation", np.asarray(history.weights, np.float64)
    if history.participation is None:
        return card(head, "<p>Every client takes part in every round.</p>")
    shares = np.asarray(history.participation, np.float64)
    order = np.arange(len(weights)) if len(weights) <= MOST_POINTS else np.argsort(-weights, kind="stable")
    at = order[kept(len(order))]
    x = digits(at) if len(weights) <= MOST_POINTS else digits(kept(len(order)))
    low, high = np.quantile(shares[:, at], (0.1, 0.9), axis=0)
    ends: dict[str, Any] = {"low": digits(low), "high": digits(high)} if len(shares) > 1 else {}
    real = Series("actual weight", digits(shares[:, at].mean(axis=0)), x, **ends)
    meant = Series("weight in the objective", digits(weights[at]), x, symbol=1)
    by = "client" if len(weights) <= MOST_POINTS else f"clients, heaviest first ({len(at)} of {len(weights):,} drawn)"
    views = [View("clients", by, "mean weight in a round", [real, meant], kind="points", linear=True)]
    gap = float(np.abs(shares.mean(axis=0) - weights).max())
    said = f"<p>Largest gap between the two, mean over repeats: {number(gap)}.</p>"
    return card(head, said, plots.add(views, "Weight of each client, intended and actual"))


def _privacy(told: Any) -> str:
    """The privacy ledger of a run (see `Ledger.summary`)."""
    if not isinstance(told, dict):
        return ""
    rows = []
    for name, value in told.items():
        text = (
            "; ".join(map(str, value))
            if isinstance(value, list)
            else ""
            if value is None
            else str(value).replace("_", " ")
        )
        rows.append((name.replace("_", " "), number(value) if isinstance(value, float) else text))
    return card("Privacy", facts(rows))

"""The page of a sweep: every setting's curve, filters by swept value, and a table of scores."""

import math
from html import escape
from numbers import Real
from typing import Any

import numpy as np

from performative._base.describe import describe
from performative.plotting import is_total, label_of, wants_log
from performative.report.curves import MOST_POINTS, curve, digits, thinning, with_costs
from performative.report.figure import Series, View
from performative.report.interactive import Plots, card, facts, number, page, sortable
from performative.report.quantities import SCORES, costs, recorded
from performative.report.run_page import how_made
from performative.sweep import Sweep

_COLORS, _DASHES = 7, 6
# Limit for all curves together; the plotting library adds 5 MB.
_MOST_BYTES = 8_000_000


def sweep_page(sweep: Sweep, title: str | None = None) -> bytes:
    """Curves of all settings with filters, a sortable table of final values, and the best setting marked."""
    plots = Plots()
    first = sweep.histories[0]
    found = [recorded(history) for history in sweep.histories]
    names = [name for name in dict.fromkeys(name for each in found for name in each)]
    names.sort(key=lambda name: (SCORES.index(name) if name in SCORES else len(SCORES), _total(sweep, name, found)))
    metric = next((name for name in names if name in SCORES), None)
    # 64 bytes per point: x, mean, the two ends of the band, and the cost so far.
    most = max(40, min(MOST_POINTS, _MOST_BYTES // (64 * len(sweep.settings) * max(1, len(names)))))
    drawn = plots.add(
        [_curves(sweep, found, name, most) for name in names], "One curve per setting, by round",
        board=True, pick="Quantity",
        caption="Lines: means over repeats; bands, if at most 8 are shown: the middle 80%.",
    )  # fmt: skip
    best = None if metric is None else _best(sweep, metric)
    again = _against(sweep, metric) if metric is not None else []
    final = plots.add(again, "Final values against each swept number", pick="Against")
    repeats, rounds = first.repeats, max(int(history.rounds[-1]) for history in sweep.histories)
    over = ", ".join(f"{name} ({len(values)} values)" for name, values in sweep.over.items())
    lead = f"{len(sweep.settings)} settings of {first.meta.get('algorithm', '?')} over {over}; "
    lead += f"{rounds} rounds, {repeats} repeat{'' if repeats == 1 else 's'} each, the same seeds for all."
    body = "\n".join(
        part
        for part in (
            _found(sweep, metric, best),
            card("Every setting by round", _filters(sweep), drawn),
            card("Final values by setting", final),
            card("Final values", _table(sweep, [n for n in names if not _total(sweep, n, found)], metric, best)),
            _what(sweep),
        )
        if part
    )
    footer = f"performative {first.meta.get('performative', '?')}. {thinning(most)}"
    return page(title or f"A sweep of {first.meta.get('algorithm', '?')}", lead, body, plots, footer)


def _total(sweep: Sweep, name: str, found: list[dict[str, tuple[np.ndarray, np.ndarray]]]) -> bool:
    return (
        any(name in each and is_total(name, each[name][1], sweep.histories[0]) for each in found) or name == "epsilon"
    )


def shown(value: Any) -> str:
    """A swept value in a few characters."""
    if isinstance(value, (bool, str)) or value is None:
        return str(value)
    if _is_number(value):
        return f"{float(value):.6g}"
    told = describe(value)
    if isinstance(told, dict) and "part" in told:
        inside = ", ".join(f"{k}={v}" for k, v in told.items() if k != "part" and isinstance(v, (int, float, str)))
        return f"{told['part']}({inside})"
    if isinstance(told, dict) and "function" in told:
        return str(told["function"]).rpartition(".")[2]
    text = str(told)
    return text if len(text) <= 40 else text[:39] + "…"


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _name(setting: dict[str, Any]) -> str:
    return ", ".join(f"{name} {shown(value)}" for name, value in setting.items())


def _tags(sweep: Sweep, i: int) -> list[int]:
    """The index of a setting's value for each swept name: settings are in grid order."""
    counts = [len(values) for values in sweep.over.values()]
    return [int(k) for k in np.unravel_index(i, counts)]


def _looks(sweep: Sweep, i: int) -> dict[str, int]:
    """Color for the first swept name and dash for the second if there are few of each; otherwise cycled."""
    counts = [len(values) for values in sweep.over.values()]
    if len(counts) == 2 and counts[0] <= _COLORS and counts[1] <= _DASHES:
        color, dash = _tags(sweep, i)
        return {"color": color, "dash": dash}
    return {"color": i % _COLORS, "dash": (i // _COLORS) % _DASHES}


def _curves(sweep: Sweep, found: list[dict[str, tuple[np.ndarray, np.ndarray]]], name: str, most: int) -> View:
    series = []
    for i, each in enumerate(found):
        if name in each:
            line = curve(_name(sweep.settings[i]), *each[name], most, key=str(i), **_looks(sweep, i))
            series.append(line if _total(sweep, name, found) else with_costs(line, costs(each)))
    log = all(wants_log(name, each[name][1], sweep.histories[0]) for each in found if name in each)
    return View(
        label_of(name, sweep.histories[0]), "round", label_of(name, sweep.histories[0]), series, log="y" if log else ""
    )


def _ends(sweep: Sweep, i: int, name: str) -> np.ndarray:
    history = sweep.histories[i]
    there = {**history.records, **history.risks}
    return np.asarray(there[name][:, -1], np.float64) if name in there and there[name].size else np.array([])


def _best(sweep: Sweep, metric: str) -> int | None:
    """The setting that `Sweep.best` returns; None if every setting diverged."""
    ends = [_ends(sweep, i, metric) for i in range(len(sweep.settings))]
    fine = [h.status in ("completed", "stopped") and e.size > 0 for h, e in zip(sweep.histories, ends, strict=True)]
    scores = np.array([e.mean() if good else np.inf for e, good in zip(ends, fine, strict=True)])
    return int(np.nanargmin(scores)) if np.any(np.isfinite(scores)) else None


def _found(sweep: Sweep, metric: str | None, best: int | None) -> str:
    if metric is None:
        return ""
    if best is None:
        return card("Best setting", '<p class="answer">None</p><p>Every setting diverged.</p>')
    values = _ends(sweep, best, metric)
    said = f"Smallest mean {label_of(metric, sweep.histories[0])} at the end: {number(float(values.mean()))}"
    if len(values) > 1:
        said += f" (standard error {number(float(values.std(ddof=1) / math.sqrt(len(values))))})"
    answer = escape(_name(sweep.settings[best]))
    return card("Best setting", f'<p class="answer">{answer}</p><p>{escape(said)}.</p>')


def _filters(sweep: Sweep) -> str:
    sets = []
    for i, (name, values) in enumerate(sweep.over.items()):
        boxes = "".join(
            f'<label><input type="checkbox" data-tag="{i}" value="{k}" checked>{escape(shown(value))}</label>'
            for k, value in enumerate(values)
        )
        sets.append(f"<fieldset><legend>{escape(name)}</legend>{boxes}</fieldset>")
    return (
        f'<div class="filters">{"".join(sets)}<button type="button" id="everything">Show all</button>'
        '<output id="shown" aria-live="polite"></output></div>'
    )


def _against(sweep: Sweep, metric: str) -> list[View]:
    """Final values against each swept number, one line per combination of the others."""
    made = []
    for place, (name, values) in enumerate(sweep.over.items()):
        if len(values) < 2 or not all(_is_number(value) for value in values):
            continue
        lines: dict[str, list[tuple[float, np.ndarray]]] = {}
        for i, setting in enumerate(sweep.settings):
            ends = _ends(sweep, i, metric)
            others = _name({k: v for k, v in setting.items() if k != name}) or label_of(metric, sweep.histories[0])
            if sweep.histories[i].status in ("completed", "stopped") and ends.size and np.all(np.isfinite(ends)):
                lines.setdefault(others, []).append((float(values[_tags(sweep, i)[place]]), ends))
        series: list[Series] = []
        for others, entries in lines.items():
            entries.sort(key=lambda entry: entry[0])
            low, high = (digits(float(np.quantile(e, q)) for _, e in entries) for q in (0.1, 0.9))
            band: dict[str, Any] = {"low": low, "high": high} if sweep.histories[0].repeats > 1 else {}
            y = digits(float(ends.mean()) for _, ends in entries)
            series.append(Series(others, y, digits(x for x, _ in entries), joined=True, **band))
        ends_all = [e for entries in lines.values() for _, e in entries]
        positive = bool(ends_all) and min(float(e.min()) for e in ends_all) > 0
        wide = positive and wants_log(metric, np.concatenate(ends_all)[None, :])
        spread = min(values) > 0 and max(values) >= 8 * min(values)
        log = ("y" if wide else "") + ("x" if spread else "")
        made.append(View(name, name, f"final {label_of(metric, sweep.histories[0])}", series, kind="points", log=log))
    return made


def _table(sweep: Sweep, names: list[str], metric: str | None, best: int | None) -> str:
    rows = []
    for i, (setting, history) in enumerate(zip(sweep.settings, sweep.histories, strict=True)):
        told = _name(setting)
        cells = [
            f'<td><label><input type="checkbox" checked aria-label="show {escape(told, quote=True)}"> '
            f'<span class="swatch"></span></label>{"<span class=badge>best</span>" if i == best else ""}</td>'
        ]
        for value in setting.values():
            plain = value if _is_number(value) else shown(value)
            cells.append(f'<td data-value="{escape(str(plain), quote=True)}">{escape(shown(value))}</td>')
        cells += [_score_cell(_ends(sweep, i, name), history.status) for name in names]
        bad = int(np.sum(history.stopped_at >= 0))
        cells.append(f'<td data-value="{bad}">{f"{bad} of {history.repeats}" if bad else "none"}</td>')
        tags = ",".join(map(str, _tags(sweep, i)))
        kind = ' class="best"' if i == best else ""
        rows.append(f'<tr data-key="{i}" data-tags="{tags}"{kind}>{"".join(cells)}</tr>')
    head = ["", *sweep.over, *(label_of(name, sweep.histories[0]) for name in names), "diverged"]
    best_is = f" Best: the smallest {label_of(metric, sweep.histories[0])}." if metric else ""
    return sortable(head, rows, f"Final mean over repeats, with the middle 80% below. Sortable.{best_is}")


def _score_cell(ends: np.ndarray, status: str) -> str:
    if status == "diverged" or not np.all(np.isfinite(ends)):
        return '<td data-value="Infinity">diverged</td>'
    if not ends.size:
        return '<td data-value="">–</td>'
    mean = float(ends.mean())
    low, high = np.quantile(ends, (0.1, 0.9))
    under = f"<small>{number(float(low))} to {number(float(high))}</small>" if len(ends) > 1 else ""
    return f'<td data-value="{mean!r}">{number(mean)}{under}</td>'


def _what(sweep: Sweep) -> str:
    first = sweep.histories[0]
    seconds = float(sum(history.meta.get("seconds", 0.0) for history in sweep.histories))
    rows = [
        ("algorithm", first.meta.get("algorithm")),
        ("settings", len(sweep.settings)),
        ("compiled programs", sweep.programs),
        *how_made(first, seconds),
    ]
    return card("What was run", facts(rows))

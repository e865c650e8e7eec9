"""The pictures of an audit as views for an interactive page: the same numbers as in `pictures`."""

import math
from typing import Any

import numpy as np

from performative.audit import formats
from performative.audit.client_report import ClientReport
from performative.audit.drift import DRIFTS
from performative.audit.pictures import (
    FIRST,
    LAST,
    MOST_CLIENTS,
    MOST_PARAMETERS,
    SMALLEST,
    lines_of,
    panels_of,
    pictures,
    w1_slope,
)
from performative.audit.report import AuditReport
from performative.report.curves import Series, View, digits, view
from performative.report.interactive import Plots


def interactive_pictures(report: AuditReport, plots: Plots) -> dict[str, str]:
    """The places of the plots that these logs allow, by the names that `pictures` has for them."""
    shown = report.largest(MOST_CLIENTS)
    made = {}
    for name, picture in pictures(report).items():
        made[name] = plots.add([_VIEWS[name](report, shown)], picture.description)
    return made


def _models(report: AuditReport, shown: tuple[ClientReport, ...]) -> View:
    theta, found = report.logs.deployments.theta, report.prospect.outlook
    T = len(theta)
    ahead, path = 0, theta[-1:]
    stable = None if found is None else found.stable
    if found is not None and stable is not None:
        J = found.slopes.sum(axis=0)
        ahead = min(max(found.deployments or 0, 4), 10) if found.contraction < 1 else 4
        path = np.array([stable + np.linalg.matrix_power(J, n) @ (theta[-1] - stable) for n in range(ahead + 1)])
    order = np.argsort(-np.ptp(theta, axis=0), kind="stable")[:MOST_PARAMETERS]
    series: list[Series] = []
    for color, k in enumerate(sorted(order.tolist())):
        name = formats.parameter(report.logs.deployments.parameters[k])
        look = {"key": str(k), "color": color}
        series.append(
            {"name": name, "x": list(range(1, T + 1)), "y": digits(theta[:, k]), "dotted": True, "dash": 0} | look
        )
        if found is None or stable is None:
            continue
        quiet = {**look, "quiet": True}
        future = list(range(T, T + ahead + 1))
        series.append({"name": f"{name}, predicted", "x": future, "y": digits(path[:, k]), "dash": 1} | quiet)
        if found.contraction < 1:
            line: Series = {
                "name": f"{name}, stable point",
                "x": [T, T + ahead],
                "y": digits([stable[k]] * 2),
                "dash": 2,
            }
            if found.stable_limits is not None:
                low, high = found.stable_limits[:, k]
                line |= {"low": digits([low] * 2), "high": digits([high] * 2)}
            series.append(line | quiet)
            if found.optimal is not None:
                at = {"x": [T + ahead + 1], "y": digits([found.optimal[k]])}
                series.append({"name": f"{name}, optimum", "dash": 0} | at | quiet)
    marks = [{"name": "now", "value": T, "upright": True}] if ahead else []
    x = "deployment" + (" (dashed: predicted; dotted: stable point; last dot: optimum)" if ahead else "")
    return view("models", x, "model", series, marks=marks, linear=True)


def _effects(report: AuditReport, shown: tuple[ClientReport, ...]) -> View:
    entries = [(one.name, one.by_drift) for one in shown if one.effect.identified]
    if report.pooled is not None:
        entries.insert(0, ("all together", report.pooled.by_drift))
    series = []
    for place, kind in enumerate(DRIFTS):
        known = [(i, found[kind].p_value) for i, (_, found) in enumerate(entries) if found[kind].identified]
        chosen = kind == report.drift
        series.append({
            "name": f"drift {kind}{' (asked for)' if chosen else ''}", "y": digits(max(p, SMALLEST) for _, p in known),
            # Several can lie on top of each other: a little apart, they can all be seen.
            "at": digits(i + 0.15 * (place - 1.5) for i, _ in known), "symbol": place, "size": 12 if chosen else 8,
        })  # fmt: skip
    ticks = [[1e-6, 1e-4, 1e-2, 1], ["≤ 0.000001", "0.0001", "0.01", "1"], [math.log10(0.5 * SMALLEST), 0.3]]
    return view(
        "p-values", "", "p-value (left of the dashed line: an effect)", series, kind="rows", log="y", ticks=ticks,
        rows=[name for name, _ in entries], marks=[{"name": "level of the test", "value": report.level}],
    )  # fmt: skip


def _interval(name: str, entries: list[Any], limit: float = math.inf, **looks: Any) -> Series:
    """A series of rows: (place, value, low, high), intervals cut at a limit so that one wide one hides no other."""
    at, y, low, high = np.array(entries, np.float64).reshape(-1, 4).T
    limits = {"low": digits(np.clip(low, -limit, limit)), "high": digits(np.clip(high, -limit, limit))}
    return {"name": name, "at": digits(at), "y": digits(y), **limits, **looks}


def _directions(report: AuditReport, shown: tuple[ClientReport, ...]) -> View:
    lines, several = lines_of(shown), len(report.clients) > 1
    ends = [abs(v) for _, _, slope, narrow, exact, _ in lines for v in (slope, *(narrow or exact))]
    wide = max((end for end in ends if math.isfinite(end)), default=1.0) or 1.0
    exact = [(i + 0.12, slope, *limits) for i, (_, _, slope, _, limits, _) in enumerate(lines)]
    usual = [(i - 0.12, slope, *limits) for i, (_, _, slope, limits, _, _) in enumerate(lines) if limits is not None]
    sure = [not one[5] for one in lines]
    series = [_interval("for any training", exact, 2 * wide, open=sure, color=0)]
    if usual:
        open_ = [hollow for hollow, line in zip(sure, lines, strict=True) if line[3] is not None]
        series.append(_interval("least squares", usual, 2 * wide, open=open_, thick=4, color=1))
    rows = [f"{name} · {client}" if several else name for client, name, *_ in lines]
    return view(
        "directions", "", "sd per unit of the parameter (filled: an interval excludes 0)", series, kind="rows",
        rows=rows, range=[-1.25 * wide, 1.25 * wide], marks=[{"name": "", "value": 0}], linear=True,
    )  # fmt: skip


def _sensitivities(report: AuditReport, shown: tuple[ClientReport, ...]) -> View:
    known = [one for one in shown if one.response.identified]
    exact, usual, slopes = [], [], []
    for i, one in enumerate(known):
        found, by_squares = one.response, one.least_squares
        exact.append((i + 0.18, found.sensitivity, found.sensitivity_lower, found.sensitivity_upper))
        if by_squares is not None:
            usual.append((i, by_squares.sensitivity, by_squares.sensitivity_lower, by_squares.sensitivity_upper))
        if (slope := w1_slope(one)) is not None:
            slopes.append((i - 0.18, slope))
    tops = [entry[1] for entry in exact] + [entry[3] for entry in (usual or exact)]
    wide = 1.25 * max((top for top in tops if math.isfinite(top)), default=1.0)
    series = [_interval("holds for any training", exact, 2 * wide)]
    if usual:
        series.append(_interval("least squares", usual, 2 * wide, thick=4))
    if slopes:
        at, found_slopes = zip(*slopes, strict=True)
        series.append({"name": "slope of W₁", "at": digits(at), "y": digits(found_slopes), "symbol": 1})
    y = "movement of the data per unit of the model"
    rows = [one.name for one in known]
    return view("sensitivity", "", y, series, kind="rows", rows=rows, range=[0, wide], linear=True)


def _distances(report: AuditReport, shown: tuple[ClientReport, ...]) -> View:
    series, floors = [], []
    for one in shown[:4]:
        if one.distances is not None and one.distances.pairs:
            pairs = one.distances.pairs
            x, y = digits(pair.models for pair in pairs), digits(pair.distance for pair in pairs)
            series.append({"name": one.name, "x": x, "y": y})
            floors += [pair.floor for pair in pairs]
    marks = [{"name": "what sampling alone gives, mean", "value": float(f"{np.mean(floors):.6g}")}]
    label = "W₁ of their data" + (" (sliced)" if shown[0].distances and shown[0].distances.sliced else "")
    return view("distances", "distance of two models", label, series, kind="points", marks=marks, linear=True)


def _drivers(report: AuditReport, shown: tuple[ClientReport, ...]) -> View:
    lines = report.prospect.drivers[:MOST_CLIENTS]
    bars: Series = {"name": "share", "at": list(range(len(lines))), "y": digits(100 * line.share for line in lines)}
    bars["colors"] = [1 if line.share > 0 else 0 for line in lines]
    y, rows = "share of the contraction factor (%)", [line.name for line in lines]
    return view("drivers", "", y, [bars], kind="bars", rows=rows, linear=True)


def _groups(report: AuditReport, shown: tuple[ClientReport, ...]) -> View:
    panels = panels_of(report)
    series = []
    for when, shift, name in ((1, -0.13, FIRST), (2, 0.13, LAST)):
        rates: list[Any] = [panel[when] for panel in panels]
        entries = [(i + shift, 100 * r.value, 100 * r.low, 100 * r.high) for i, r in enumerate(rates)]
        series.append(_interval(name, entries))
    rows = [name for name, *_ in panels]
    return view("groups", "", "% of the group", series, kind="rows", rows=rows, range=[0, 100], linear=True)


def _acceptance(report: AuditReport, shown: tuple[ClientReport, ...]) -> View:
    assert report.groups is not None  # there is a picture of it
    deployments, series = report.groups.by_deployment, []
    for group in [rates.group for rates in report.groups.after][:6]:
        found = [next((r.acceptance for r in rates if r.group == group), None) for rates in deployments.values()]
        known = [(i + 1, rate) for i, rate in enumerate(found) if rate is not None]
        ends = {end: digits(100 * getattr(rate, end) for _, rate in known) for end in ("low", "high")}
        y = digits(100 * rate.value for _, rate in known)
        series.append({"name": f"group {group}", "x": [i for i, _ in known], "y": y, "dotted": True, **ends})
    names = list(deployments)
    x = f"deployment ({names[0]} to {names[-1]})"
    return view("acceptance", x, "accepted (%)", series, range=[0, 104], linear=True)


_VIEWS = {
    "models": _models, "effect": _effects, "directions": _directions, "sensitivity": _sensitivities,
    "distances": _distances, "drivers": _drivers, "groups": _groups, "acceptance": _acceptance,
}  # fmt: skip

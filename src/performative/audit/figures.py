"""The figures of an audit: what each shows. Pages draw them, with or without scripts."""

import math
from typing import Any

import numpy as np

from performative.audit import formats
from performative.audit.audit_report import AuditReport
from performative.audit.briefing import strongest
from performative.audit.client_report import ClientReport
from performative.audit.drift import DRIFTS
from performative.audit.rates import GroupRates, Rate
from performative.audit.response import Direction
from performative.report.curves import digits
from performative.report.figure import Mark, Series, View

# Maximum numbers of clients and lines that a figure shows; all are in the JSON.
MOST_CLIENTS = 20
_MOST_LINES = 14
_MOST_PARAMETERS = 4
# p-values below this are drawn there.
_SMALLEST = 1e-6


def pictures(report: AuditReport) -> dict[str, View]:
    """The figures that these logs allow, by name."""
    shown = report.largest(MOST_CLIENTS)
    known = [one for one in shown if one.response.identified]
    apart = [one for one in shown if one.distances is not None and one.distances.pairs]
    drivers = report.prospect.drivers[:MOST_CLIENTS]
    lines, panels = _lines(shown), [] if report.groups is None else _panels(report)
    made = {"models": _models(report)}
    if (found := strongest(report)) is not None:
        made["short"] = _follows(*found[:2])
    elif report.groups is not None and len(report.groups.by_deployment) > 1:
        made["short"] = _acceptance(report)
    else:
        made["short"] = made["models"]
    if any(one.effect.identified for one in shown):
        made["effect"] = _effects(report, shown)
    if lines:
        made["directions"] = _directions(lines, len(report.clients) > 1)
    if known:
        made["sensitivity"] = _sensitivities(known)
    if apart:
        made["distances"] = _distances(apart[:4])
    if len(drivers) > 1 and not math.isnan(drivers[0].share):
        made["drivers"] = _drivers(drivers)
    if panels:
        made["groups"] = _groups(panels)
    if report.groups is not None and len(report.groups.by_deployment) > 1:
        made["acceptance"] = _acceptance(report)
    return made


def _follows(one: ClientReport, line: Direction) -> View:
    """The column that moved most against the deployed model: one dot per deployment."""
    log = one.log
    j, k = (log.columns or ()).index(line.column), (log.parameters or ()).index(line.parameter)
    theta, mean = log.theta[:, k], log.mean[:, j]
    half = 1.96 * np.sqrt(log.column_variances[:, j] / log.count)
    dots = Series(
        "deployments", digits(mean), digits(theta), low=digits(mean - half), high=digits(mean + half), color=0
    )
    ends = np.array([theta.min(), theta.max()])
    through = mean.mean() + line.slope * (ends - theta.mean())
    fitted = Series("fitted response", digits(through), digits(ends), color=1, joined=True, size=0)
    about = f"Mean {line.column} at {one.name} against the deployed model, with the fitted line."
    return View(
        "in short", f"model: {formats.parameter(line.parameter)}", f"mean {line.column}, {one.name}", [dots, fitted],
        kind="points", linear=True, description=about,
    )  # fmt: skip


def _models(report: AuditReport) -> View:
    theta, found = report.logs.deployments.theta, report.prospect.outlook
    T = len(theta)
    ahead, path = 0, theta[-1:]
    stable = None if found is None else found.stable
    if found is not None and stable is not None:
        J = found.slopes.sum(axis=0)
        ahead = min(max(found.deployments or 0, 4), 10) if found.contraction < 1 else 4
        path = np.array([stable + np.linalg.matrix_power(J, n) @ (theta[-1] - stable) for n in range(ahead + 1)])
    # The parameters that moved most, if there are too many to show.
    order = np.argsort(-np.ptp(theta, axis=0), kind="stable")[:_MOST_PARAMETERS]
    series: list[Series] = []
    for color, k in enumerate(sorted(order.tolist())):
        name = formats.parameter(report.logs.deployments.parameters[k])
        look: dict[str, Any] = {"key": str(k), "color": color}
        series.append(Series(name, digits(theta[:, k]), list(range(1, T + 1)), dotted=True, dash=0, **look))
        if found is None or stable is None:
            continue
        look["quiet"] = True
        series.append(Series(f"{name}, predicted", digits(path[:, k]), list(range(T, T + ahead + 1)), dash=1, **look))
        if found.contraction < 1:
            limits = found.stable_limits
            low, high = (None, None) if limits is None else (digits([end] * 2) for end in limits[:, k])
            rest = digits([stable[k]] * 2)
            line = Series(f"{name}, stable point", rest, [T, T + ahead], low=low, high=high, dash=2, **look)
            series.append(line)
            if found.optimal is not None:
                best = digits([found.optimal[k]])
                series.append(Series(f"{name}, optimum", best, [T + ahead + 1], dash=0, **look))
    marks = [Mark("now", T, upright=True)] if ahead else []
    x = "deployment" + (" (dashed: predicted; dotted: stable point; last dot: optimum)" if ahead else "")
    about = " and, dashed, what retraining would do from here" if found is not None else ""
    about = f"The deployed models{about}."
    return View("models", x, "model", series, marks=marks, linear=True, description=about)


def _effects(report: AuditReport, shown: tuple[ClientReport, ...]) -> View:
    entries = [(one.name, one.by_drift) for one in shown if one.effect.identified]
    if report.pooled is not None:
        entries.insert(0, ("pooled", report.pooled.by_drift))
    series = []
    for place, kind in enumerate(DRIFTS):
        known = [(i, found[kind].p_value) for i, (_, found) in enumerate(entries) if found[kind].identified]
        chosen = kind == report.drift
        # Offset them a little, since several can overlap.
        at = digits(i + 0.15 * (place - 1.5) for i, _ in known)
        name = f"drift {kind}{' (requested)' if chosen else ''}"
        p = digits(max(p, _SMALLEST) for _, p in known)
        series.append(Series(name, p, at=at, symbol=place, size=12 if chosen else 8))
    ticks = ([1e-6, 1e-4, 1e-2, 1], ["≤ 0.000001", "0.0001", "0.01", "1"], [math.log10(0.5 * _SMALLEST), 0.3])
    return View(
        "p-values", "", "p-value (left of the dashed line: an effect)", series, kind="rows", log="y", ticks=ticks,
        rows=[name for name, _ in entries], marks=[Mark("level of the test", report.level)],
        description="p-values of each client under four kinds of drift, against the level of the test.",
    )  # fmt: skip


def _interval(name: str, entries: list[Any], limit: float = math.inf, **looks: Any) -> Series:
    """A series of rows: (place, value, low, high), intervals clipped at a limit so a wide one does not hide others."""
    at, y, low, high = np.array(entries, np.float64).reshape(-1, 4).T
    cut = {"low": digits(np.clip(low, -limit, limit)), "high": digits(np.clip(high, -limit, limit))}
    return Series(name, digits(y), at=digits(at), **{**cut, **looks})


def _lines(shown: tuple[ClientReport, ...]) -> list[tuple[str, str, float, Any, Any, bool]]:
    """(client, "column by parameter", slope, usual interval, exact interval, whether one excludes 0), in sd."""
    found = []
    for one in shown:
        if not one.response.identified:
            continue
        sure = {(line.column, line.parameter) for line, _ in one.directions}
        spread = one.log.spread
        for j, column in enumerate(one.log.columns or ()):
            for k, parameter in enumerate(one.log.parameters or ()):
                exact, usual = (
                    None if fit is None else (fit.lower[j, k] / spread[j], fit.upper[j, k] / spread[j])
                    for fit in (one.response, one.least_squares)
                )
                name = f"{column} per {formats.parameter(parameter)}"
                slope = one.response.B[j, k] / spread[j]
                found.append((one.name, name, slope, usual, exact, (column, parameter) in sure))
    found.sort(key=lambda line: (not line[5], -abs(line[2])))
    return found[:_MOST_LINES]


def _directions(lines: list[tuple[str, str, float, Any, Any, bool]], several: bool) -> View:
    ends = [abs(v) for _, _, slope, narrow, exact, _ in lines for v in (slope, *(narrow or exact))]
    wide = max((end for end in ends if math.isfinite(end)), default=1.0) or 1.0
    exact = [(i + 0.12, slope, *limits) for i, (_, _, slope, _, limits, _) in enumerate(lines)]
    usual = [(i - 0.12, slope, *limits) for i, (_, _, slope, limits, _, _) in enumerate(lines) if limits is not None]
    series = [_interval("valid for any training", exact, 2 * wide, open=[not line[5] for line in lines], color=0)]
    if usual:
        hollow = [not line[5] for line in lines if line[3] is not None]
        series.append(_interval("least squares", usual, 2 * wide, open=hollow, thick=4, color=1))
    rows = [f"{name} · {client}" if several else name for client, name, *_ in lines]
    return View(
        "directions", "", "sd per unit of the parameter (filled: an interval excludes 0)", series, kind="rows",
        rows=rows, range=[-1.25 * wide, 1.25 * wide], marks=[Mark("", 0)], linear=True,
        description="Which column moves by how many standard deviations per unit of which parameter, with intervals.",
    )  # fmt: skip


def w1_slope(one: ClientReport) -> float | None:
    """The slope of W_1 in the distance between models: it includes drift, so only for clients found to react."""
    return one.distances.sensitivity if one.reacts and one.distances is not None and one.distances.pairs else None


def _sensitivities(known: list[ClientReport]) -> View:
    exact: list[tuple[float, ...]] = []
    usual: list[tuple[float, ...]] = []
    slopes = []
    for i, one in enumerate(known):
        for found, place, into in ((one.response, i + 0.18, exact), (one.least_squares, float(i), usual)):
            if found is not None:
                into.append((place, found.sensitivity, found.sensitivity_lower, found.sensitivity_upper))
        if (slope := w1_slope(one)) is not None:
            slopes.append((i - 0.18, slope))
    tops = [entry[1] for entry in exact] + [entry[3] for entry in (usual or exact)]
    wide = 1.25 * max((top for top in tops if math.isfinite(top)), default=1.0)
    series = [_interval("valid for any training", exact, 2 * wide)]
    if usual:
        series.append(_interval("least squares", usual, 2 * wide, thick=4))
    if slopes:
        at, values = zip(*slopes, strict=True)
        series.append(Series("slope of W₁", digits(values), at=digits(at), symbol=1))
    return View(
        "sensitivity", "", "movement of the data per unit of the model", series, kind="rows",
        rows=[one.name for one in known], range=[0, wide], linear=True,
        description="Sensitivity of each client with bootstrap intervals, and the slope of the Wasserstein distance.",
    )  # fmt: skip


def _distances(apart: list[ClientReport]) -> View:
    pairs = {one.name: one.distances.pairs for one in apart if one.distances is not None}
    series = [
        Series(name, digits(pair.distance for pair in mine), digits(pair.models for pair in mine))
        for name, mine in pairs.items()
    ]
    floor = float(np.mean([pair.floor for mine in pairs.values() for pair in mine]))
    marks = [Mark("sampling noise alone, mean", float(f"{floor:.6g}"))]
    sliced = any(one.distances is not None and one.distances.sliced for one in apart[:1])
    return View(
        "distances", "distance between two models", f"W₁ between their data{' (sliced)' if sliced else ''}", series,
        kind="points", marks=marks, linear=True,
        description="Wasserstein distance between the rows of two deployments against that between their models.",
    )  # fmt: skip


def _drivers(lines: Any) -> View:
    shares, at = digits(100 * line.share for line in lines), list(range(len(lines)))
    bars = Series("share", shares, at=at, colors=[1 if line.share > 0 else 0 for line in lines])
    return View(
        "drivers", "", "share of the contraction factor (%)", [bars], kind="bars", linear=True,
        rows=[line.name for line in lines], description="Each client's share of the contraction factor of retraining.",
    )  # fmt: skip


def _panels(report: AuditReport) -> list[tuple[str, Rate, Rate]]:
    """(rate and group, before, after), for rates that are known."""
    groups = report.groups
    assert groups is not None
    after = {rates.group: rates for rates in groups.after}
    found = []
    for name in ("acceptance", "tpr", "tnr"):
        for rates in groups.before[: MOST_CLIENTS // 2]:
            pair = (_rate(rates, name), _rate(after.get(rates.group), name))
            if pair[0] is not None and pair[1] is not None:
                found.append((f"{name if name == 'acceptance' else name.upper()}, {rates.group}", pair[0], pair[1]))
    return found


def _rate(rates: GroupRates | None, name: str) -> Rate | None:
    value: Rate | None = None if rates is None else getattr(rates, name)
    return None if value is None or math.isnan(value.value) else value


def _groups(panels: list[tuple[str, Rate, Rate]]) -> View:
    series = []
    for when, shift, name in ((1, -0.13, "people of the first deployment"), (2, 0.13, "of the last")):
        rates: list[Any] = [panel[when] for panel in panels]
        entries = [(i + shift, 100 * r.value, 100 * r.low, 100 * r.high) for i, r in enumerate(rates)]
        series.append(_interval(name, entries))
    return View(
        "groups", "", "% of the group", series, kind="rows", rows=[name for name, *_ in panels], range=[0, 100],
        linear=True,
        description="Acceptance, true positive and true negative rates by group, of the first and the last deployment.",
    )  # fmt: skip


def _acceptance(report: AuditReport) -> View:
    assert report.groups is not None  # there is a picture of it
    deployments, series = report.groups.by_deployment, []
    for group in [rates.group for rates in report.groups.after][:6]:
        found = [next((r.acceptance for r in rates if r.group == group), None) for rates in deployments.values()]
        known = [(i + 1, rate) for i, rate in enumerate(found) if rate is not None]
        y, low, high = (digits(100 * getattr(rate, name) for _, rate in known) for name in ("value", "low", "high"))
        series.append(Series(f"group {group}", y, [i for i, _ in known], low=low, high=high, dotted=True))
    names = list(deployments)
    x, about = f"deployment ({names[0]} to {names[-1]})", "Acceptance by group and deployment."
    return View("acceptance", x, "accepted (%)", series, range=[0, 104], linear=True, description=about)

"""Pictures of an audit, one by one, as SVG for light and for dark paper."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from performative.audit import formats, words
from performative.audit.client_report import ClientReport
from performative.audit.drift import DRIFTS
from performative.audit.rates import GroupRates, Rate
from performative.audit.report import AuditReport
from performative.plotting import COLORS
from performative.report.theme import Shade, saved, shade, theme

# Clients and lines that a picture shows at most; all are in the JSON.
MOST_CLIENTS = 20
_MOST_LINES = 14
MOST_PARAMETERS = 4
_BLUE, _ORANGE, _GREEN, _PURPLE, _YELLOW = COLORS[:5]
_MARKS = dict(zip(DRIFTS, ("v", "^", "s", "o"), strict=True))
# p-values below this are drawn there.
SMALLEST = 1e-6
# Whom the rates by group are about.
FIRST, LAST = "people of the first deployment", "of the last"


@dataclass(frozen=True)
class Picture:
    """How to draw, how high in inches, and what it shows in words."""

    draw: Callable[[Any, Shade], None]
    height: float
    description: str

    def svg(self, dark: bool) -> bytes:
        import matplotlib
        from matplotlib.figure import Figure

        with matplotlib.rc_context(theme(dark, **{"legend.fontsize": 9.0})):
            figure = Figure(figsize=(4.7, self.height), layout="constrained", facecolor="none")
            self.draw(figure.subplots(), shade(dark))
            return saved(figure, "svg")


def pictures(report: AuditReport) -> dict[str, Picture]:
    """Those that these logs allow, by name."""
    shown = report.largest(MOST_CLIENTS)
    made = {"models": Picture(lambda ax, shade: _models(ax, shade, report), 3.3, _about_models(report))}
    if any(one.effect.identified for one in shown):
        rows = len(shown) + (report.pooled is not None)
        made["effect"] = Picture(
            lambda ax, shade: _effects(ax, shade, report, shown),
            1.5 + 0.27 * rows,
            "p-values of each client under four kinds of drift, against the level of the test.",
        )
    lines = lines_of(shown)
    if lines:
        made["directions"] = Picture(
            lambda ax, shade: _directions(ax, shade, lines, len(report.clients) > 1),
            1.4 + 0.27 * len(lines),
            "Which column moves by how many standard deviations per unit of which parameter, with intervals.",
        )
    if any(one.response.identified for one in shown):
        made["sensitivity"] = Picture(
            lambda ax, shade: _sensitivities(ax, shade, shown),
            max(2.6, 1.5 + 0.27 * len(shown)),
            "Sensitivity of each client with bootstrap intervals, and the slope of the Wasserstein distance.",
        )
    if any(one.distances is not None and one.distances.pairs for one in shown):
        made["distances"] = Picture(
            lambda ax, shade: _distances(ax, shade, shown[:4]),
            3.2,
            "Wasserstein distance between the rows of two deployments against the distance of their models.",
        )
    drivers = report.prospect.drivers[:MOST_CLIENTS]
    if len(drivers) > 1 and not math.isnan(drivers[0].share):
        made["drivers"] = Picture(
            lambda ax, shade: _drivers(ax, shade, drivers),
            1.1 + 0.27 * len(drivers),
            "Each client's share of the contraction factor of retraining.",
        )
    if report.groups is not None:
        panels = panels_of(report)
        if panels:
            made["groups"] = Picture(
                lambda ax, shade: _groups(ax, shade, panels),
                1.4 + 0.3 * len(panels),
                "Acceptance, true positive and true negative rates by group, of the first and the last deployment.",
            )
        if len(report.groups.by_deployment) > 1:
            made["acceptance"] = Picture(
                lambda ax, shade: _acceptance(ax, shade, report), 2.9, "Acceptance by group and deployment."
            )
    return made


def _effects(ax: Any, shade: Shade, report: AuditReport, shown: tuple[ClientReport, ...]) -> None:
    entries = [(one.name, one.by_drift) for one in shown if one.effect.identified]
    if report.pooled is not None:
        entries.insert(0, ("all together", report.pooled.by_drift))
    colors = dict(zip(DRIFTS, (_YELLOW, _GREEN, _PURPLE, _BLUE), strict=True))
    for kind in DRIFTS:
        p = [max(found[kind].p_value, SMALLEST) if found[kind].identified else math.nan for _, found in entries]
        chosen = kind == report.drift
        label = f"{kind} (asked for)" if chosen else kind
        # Several can lie on top of each other: a little apart, they can all be seen.
        at = np.arange(len(p)) + 0.13 * (DRIFTS.index(kind) - 1.5)
        ax.plot(
            p, at, _MARKS[kind], color=shade(colors[kind]), markersize=8 if chosen else 5, linestyle="none",
            label=label,
        )  # fmt: skip
    ax.axvline(report.level, color=_ink(ax), linewidth=1.0, linestyle="--")
    ax.set_xscale("log")
    ax.set_xlim(0.6 * SMALLEST, 1.8)
    ax.set_xticks([1e-6, 1e-4, 1e-2, 1], ["≤ 0.000001", "0.0001", "0.01", "1"])
    ax.minorticks_off()
    _names(ax, [name for name, _ in entries])
    ax.set_xlabel(f"p-value (dashed: {report.level:g}; left of it: an effect)")
    ax.figure.legend(loc="outside upper left", ncols=4, columnspacing=0.9, handletextpad=0.1, title="drift allowed for",
                     alignment="left", title_fontsize=9.0)  # fmt: skip


def lines_of(shown: tuple[ClientReport, ...]) -> list[tuple[str, str, float, Any, Any, bool]]:
    """(client, "column by parameter", slope, usual interval, exact interval, whether one excludes 0), in deviations."""
    found = []
    for one in shown:
        if not one.response.identified:
            continue
        sure = {(line.column, line.parameter) for line, _ in words.directions(one)}
        spread = one.log.spread
        for j, column in enumerate(one.log.columns or ()):
            for k, parameter in enumerate(one.log.parameters or ()):
                exact = (one.response.lower[j, k] / spread[j], one.response.upper[j, k] / spread[j])
                usual = one.least_squares
                narrow = None if usual is None else (usual.lower[j, k] / spread[j], usual.upper[j, k] / spread[j])
                slope = one.response.B[j, k] / spread[j]
                name = f"{column} per {formats.parameter(parameter)}"
                found.append((one.name, name, slope, narrow, exact, (column, parameter) in sure))
    found.sort(key=lambda line: (not line[5], -abs(line[2])))
    return found[:_MOST_LINES]


def _directions(ax: Any, shade: Shade, lines: list[tuple[str, str, float, Any, Any, bool]], several: bool) -> None:
    ends = [abs(v) for _, _, slope, narrow, exact, _ in lines for v in (slope, *(narrow or exact))]
    wide = max((end for end in ends if math.isfinite(end)), default=1.0) or 1.0
    for row, (_, _, slope, narrow, exact, sure) in enumerate(lines):
        color = shade(_ORANGE if slope > 0 else _BLUE)
        low, high = np.clip(exact, -1.3 * wide, 1.3 * wide)
        ax.plot([low, high], [row, row], color=color, linewidth=1.2, alpha=0.7)
        if narrow is not None:
            ax.plot(narrow, [row, row], color=color, linewidth=4.5, alpha=0.55, solid_capstyle="butt")
        ax.plot(slope, row, "o", color=color, markersize=6, markerfacecolor=color if sure else "none")
    ax.axvline(0.0, color=_ink(ax), linewidth=1.0)
    ax.set_xlim(-1.25 * wide, 1.25 * wide)
    _names(ax, [f"{name}\n{client}" if several else name for client, name, *_ in lines], size=7.5)
    ax.set_xlabel("sd per unit of the parameter")


def w1_slope(one: ClientReport) -> float | None:
    """The slope of W_1 in the distance of models: it holds drift too, so only of a client that is seen to react."""
    return one.distances.sensitivity if one.reacts and one.distances is not None and one.distances.pairs else None


def _sensitivities(ax: Any, shade: Shade, shown: tuple[ClientReport, ...]) -> None:
    known = [one for one in shown if one.response.identified]
    tops = [one.response.sensitivity for one in known] + [
        one.least_squares.sensitivity_upper for one in known if one.least_squares is not None
    ]
    if all(one.least_squares is None for one in known):
        tops += [one.response.sensitivity_upper for one in known]
    wide = 1.25 * max((top for top in tops if math.isfinite(top)), default=1.0)
    for row, one in enumerate(known):
        found, usual = one.response, one.least_squares
        ax.plot([found.sensitivity_lower, min(found.sensitivity_upper, 2 * wide)], [row, row], color=shade(_BLUE),
                linewidth=1.2, label="holds for any training" if not row else None)  # fmt: skip
        if usual is not None:
            ax.plot([usual.sensitivity_lower, usual.sensitivity_upper], [row, row], color=shade(_BLUE), linewidth=4.5,
                    alpha=0.55, solid_capstyle="butt", label="least squares" if not row else None)  # fmt: skip
        ax.plot(found.sensitivity, row, "o", color=shade(_BLUE), markersize=6)
        if (slope := w1_slope(one)) is not None:
            first = one is next(other for other in known if w1_slope(other) is not None)
            ax.plot(slope, row, "D", color=shade(_ORANGE), markersize=5, linestyle="none",
                    label="slope of $W_1$" if first else None)  # fmt: skip
    ax.set_xlim(0.0, wide)
    _names(ax, [one.name for one in known])
    ax.set_xlabel("movement of the data per unit of the model")
    ax.figure.legend(loc="outside upper left", ncols=3, columnspacing=1.0)


def _distances(ax: Any, shade: Shade, shown: tuple[ClientReport, ...]) -> None:
    floors = []
    for one, color in zip(shown, (_BLUE, _ORANGE, _GREEN, _PURPLE), strict=False):
        if one.distances is None or not one.distances.pairs:
            continue
        x = np.array([pair.models for pair in one.distances.pairs])
        ax.plot(
            x,
            [pair.distance for pair in one.distances.pairs],
            "o",
            color=shade(color),
            markersize=4,
            label=_short(one.name),
        )
        floors += [(pair.models, pair.floor) for pair in one.distances.pairs]
    level = float(np.mean([floor for _, floor in floors]))
    ax.axhspan(0, level, color=_ink(ax), alpha=0.12, linewidth=0)
    ax.set_xlim(left=0)
    ax.set_ylim(bottom=0)
    # In the band, or just above one that is too thin for words.
    at = max(0.4 * level, 0.05 * ax.get_ylim()[1])
    ax.annotate(
        "what sampling alone gives",
        (0.99, at),
        xycoords=("axes fraction", "data"),
        ha="right",
        va="center",
        fontsize=8.5,
    )
    ax.set_xlabel("distance of two models")
    ax.set_ylabel("$W_1$ of their data" + (" (sliced)" if shown[0].distances and shown[0].distances.sliced else ""))
    ax.figure.legend(loc="outside upper left", ncols=4, columnspacing=1.0, handletextpad=0.1)


def _about_models(report: AuditReport) -> str:
    ahead = " and, dashed, what retraining would do from here" if report.prospect.outlook is not None else ""
    return f"The models deployed{ahead}."


def _models(ax: Any, shade: Shade, report: AuditReport) -> None:
    theta, found = report.logs.deployments.theta, report.prospect.outlook
    T, d = theta.shape
    ahead = 0
    path = theta[-1:]
    if found is not None and found.stable is not None:
        J = found.slopes.sum(axis=0)
        ahead = min(max(found.deployments or 0, 4), 10) if found.contraction < 1 else 4
        path = np.array(
            [found.stable + np.linalg.matrix_power(J, n) @ (theta[-1] - found.stable) for n in range(ahead + 1)]
        )
    past, future = np.arange(1, T + 1), np.arange(T, T + ahead + 1)
    # Parameters that moved most, where there are too many to tell apart.
    order = np.argsort(-np.ptp(theta, axis=0), kind="stable")[:MOST_PARAMETERS]
    for k, color in zip(sorted(order.tolist()), (_BLUE, _ORANGE, _GREEN, _PURPLE), strict=False):
        here = shade(color)
        name = _short(formats.parameter(report.logs.deployments.parameters[k]))
        ax.plot(past, theta[:, k], "o-", color=here, markersize=3.5, linewidth=1.2, label=name)
        if found is None or found.stable is None:
            continue
        ax.plot(future, path[:, k], "--", color=here, linewidth=1.4)
        if found.contraction < 1:
            if found.stable_limits is not None:
                ax.fill_between([T, T + ahead], *found.stable_limits[:, k], color=here, alpha=0.25, linewidth=0)
            if found.optimal is not None:
                ax.plot(T + ahead + 0.7, found.optimal[k], "*", color=here, markersize=10, clip_on=False)
    if ahead:
        ax.axvline(T, color=_ink(ax), linewidth=0.8, linestyle=":")
        ax.annotate("now", (T, 0.0), xycoords=("data", "axes fraction"), ha="right", va="bottom", fontsize=8.5,
                    xytext=(-3, 3), textcoords="offset points")  # fmt: skip
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_xlabel(
        "deployment"
        + (" (dashed: predicted" + ("; star: optimum)" if found and found.contraction < 1 else ")") if ahead else "")
    )
    ax.set_ylabel("model")
    ax.figure.legend(loc="outside upper left", ncols=2 if d > 2 else d, columnspacing=1.0)


def _drivers(ax: Any, shade: Shade, lines: Any) -> None:
    shares = [100 * line.share for line in lines]
    ax.barh(range(len(lines)), shares, color=[shade(_ORANGE if v > 0 else _BLUE) for v in shares], height=0.6)
    ax.axvline(0.0, color=_ink(ax), linewidth=1.0)
    _names(ax, [line.name for line in lines])
    ax.set_xlabel("share of the contraction factor (%)")


def panels_of(report: AuditReport) -> list[tuple[str, Rate, Rate]]:
    """(what of which group, before, after), rates that are known."""
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


def _groups(ax: Any, shade: Shade, panels: list[tuple[str, Rate, Rate]]) -> None:
    for shift, color, label in ((-0.12, _BLUE, FIRST), (0.12, _ORANGE, LAST)):
        rates = [panel[1] if shift < 0 else panel[2] for panel in panels]
        rows = np.arange(len(rates)) + shift
        for row, rate in zip(rows, rates, strict=True):
            ax.plot([100 * rate.low, 100 * rate.high], [row, row], color=shade(color), linewidth=3, alpha=0.5)
        ax.plot([100 * rate.value for rate in rates], rows, "o", color=shade(color), markersize=6, label=label)
    _names(ax, [name for name, *_ in panels])
    ax.set_xlim(0, 100)
    ax.set_xlabel("% of the group")
    ax.figure.legend(loc="outside upper left", ncols=2)


def _acceptance(ax: Any, shade: Shade, report: AuditReport) -> None:
    assert report.groups is not None
    names = list(report.groups.by_deployment)
    for group, color in zip([r.group for r in report.groups.after], COLORS[:6], strict=False):
        rates = [
            next((r.acceptance for r in found if r.group == group), None)
            for found in report.groups.by_deployment.values()
        ]
        x = [i + 1 for i, rate in enumerate(rates) if rate is not None]
        known = [rate for rate in rates if rate is not None]
        ax.plot(
            x,
            [100 * rate.value for rate in known],
            "o-",
            color=shade(color),
            markersize=3.5,
            label=_short(f"group {group}"),
        )
        ax.fill_between(
            x, [100 * r.low for r in known], [100 * r.high for r in known], color=shade(color), alpha=0.2, linewidth=0
        )
    ax.set_ylim(0, 104)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_xlabel(f"deployment ({_short(names[0])} to {_short(names[-1])})")
    ax.set_ylabel("accepted (%)")
    ax.legend(loc="best", ncols=2)


def _names(ax: Any, names: list[str], size: float = 9.0) -> None:
    """Names down the side, the first on top."""
    ax.set_yticks(range(len(names)), [_short(name) for name in names], fontsize=size)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(axis="y", visible=False)


def _short(name: str, most: int = 34) -> str:
    # A dollar sign would start a formula.
    return "\n".join(line if len(line) <= most else line[: most - 1] + "…" for line in name.split("\n")).replace(
        "$", r"\$"
    )


def _ink(ax: Any) -> str:
    color: str = ax.xaxis.label.get_color()
    return color

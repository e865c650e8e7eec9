"""The results of an audit, question by question, for pages and terminals."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from performative.audit.audit_report import AuditReport
from performative.audit.causes.cause import Cause
from performative.audit.causes.words import NAMES
from performative.audit.causes.words import WORDS as CAUSES
from performative.audit.client_report import ClientReport
from performative.audit.drift import DRIFTS
from performative.audit.figures import MOST_CLIENTS, w1_slope
from performative.audit.formats import chance, distance, number, parameter, percent, span
from performative.audit.groups import GroupReport
from performative.audit.rates import GroupRates
from performative.audit.words import WORDS
from performative.findings import part
from performative.report.section import Cell, Section, Table

_MOST_DIRECTIONS = 40
FIRST = "In short"
_ANSWERS = {True: "Yes", False: "Not detected", None: "Unknown"}
_SETTLES = {True: "It settles", False: "It does not settle", None: "Uncertain"}
_SIZES = (
    "Sensitivity: how far the means move per unit of the model, the maximum over directions; bootstrap intervals. W₁: "
    "Wasserstein distance of the rows, beyond sampling noise; it includes drift. Last: the smallest response that "
    "would have been detected, in standard deviations per unit of a parameter."
)
_EXACT = "Lines are intervals that are valid however the models were trained."
_BOTH = (
    "Thin lines are valid however the models were trained; thick ones are least squares, correct if models were chosen "
    "by hand or explored at random, and a little too narrow if they were only ever retrained."
)


def sections(report: AuditReport, short: bool = False) -> Iterator[Section]:
    """Warnings, the questions, and what was assumed. short: only the largest clients and a few directions."""
    for text in report.warnings:
        yield Section("Warning", text.split(":")[0], [text], loud=True)
    clients = report.largest(MOST_CLIENTS) if short else report.clients
    yield in_short(report)
    yield _effect(report)
    yield _clients(report, clients)
    yield _which_way(report)
    yield Section("By how much", tables=_directions(report, _MOST_DIRECTIONS // 4 if short else _MOST_DIRECTIONS))
    question = "How strongly?" if report.effect else "How strong could a reaction be?"
    yield Section(question, tables=_sizes(clients), pictures=("sensitivity", "distances"))
    yield from _ahead(report)
    if report.cause is not None:
        yield _cause(report.cause)
    advice = report.advice
    said = [*advice.reasons, *dict.fromkeys(map(WORDS.say, advice.robust))]
    code = [("", advice.code)] if advice.code else []
    code += [advice.otherwise] if advice.otherwise else []
    yield Section("What to do next?", advice.title, said, code=code, lead="Next")
    if report.groups is not None:
        yield from _people(report, report.groups)


def in_short(report: AuditReport) -> Section:
    """The first page: four sentences, one figure, one recommendation."""
    *said, do = report.said("brief")
    return Section(FIRST, said=[*said, f"What to do: {do}"], pictures=["short"])


def _cause(found: Cause) -> Section:
    """What the decision itself does, and why other designs were not used."""
    answer = "Not identified from these logs"
    if found.identified:
        low, high = found.interval
        answer = f"{number(found.estimate)} ({span(low, high)}) of {found.outcome}"
    said = [CAUSES.say(one) for one in found.findings if one.code.startswith(("effect.", "assumption.", "caution."))]
    return Section("What does the decision do?", answer, said, each={NAMES[n]: w for n, w in found.refusals.items()})


def _effect(report: AuditReport) -> Section:
    answer, about = _ANSWERS[report.effect], []
    if report.hedged:
        answer = "It seems so, but drift could explain it too"
    elif report.effect is None and any(one.reacts is not None for one in report.clients):
        answer = "Not in the features; unknown for the label"
    if report.pooled is not None:
        about.append(
            f"Pooled ({report.pooled.who}, weighted mean): {chance(report.pooled.effect.p_value)}. "
            "The test asks whether the data follow the models beyond any drift of the assumed kind."
        )
    if len(report.clients) > MOST_CLIENTS:
        about.append(f"The figures show the {MOST_CLIENTS} clients with the largest weights, the tables all.")
    return Section("Do the data react to the model?", answer, [report.verdict], about=about, pictures=["effect"])


def _clients(report: AuditReport, clients: tuple[ClientReport, ...]) -> Section:
    def chances(found: Any) -> list[Cell]:
        shown = {kind: chance(found[kind].p_value).removeprefix("p ").removeprefix("= ") for kind in DRIFTS}
        return [shown[kind] if found[kind].identified else "–" for kind in DRIFTS]

    rows = [] if report.pooled is None else [[report.pooled.who, "", *chances(report.pooled.by_drift)]]
    for one in clients:
        answer = {True: "yes", False: "not detected", None: "unknown"}[one.reacts]
        rows.append([(one.name, f"{one.rows:,} rows"), answer, *chances(one.by_drift)])
    small = "p-values of each client alone; whether it reacts is corrected for all tests (Holm)."
    each = {one.name: report.client_verdicts[one.name] for one in clients}
    if len(clients) < len(report.clients):
        each["..."] = f"and {len(report.clients) - len(clients)} more clients: see the page."
    table = Table(("client", "reacts", *(f"p, drift {kind}" for kind in DRIFTS)), rows, [small])
    return Section("Client by client", tables=[table], each=each, folded=len(clients) > MOST_CLIENTS)


def _which_way(report: AuditReport) -> Section:
    question, found = "Which way do the data move?", part(report.findings, "moves")
    if not found or found[0].code == "moves.together":
        return Section(question, about=[WORDS.tell(found) or "No direction stands out."], pictures=["directions"])
    first = found[0]
    name = f"{first.data['client']}: " if len(report.clients) > 1 else ""
    several = any(one.name == first.data["client"] and one.least_squares is not None for one in report.clients)
    about = [f"Filled: an interval excludes 0. {_BOTH if several else _EXACT}"]
    if first.data["method"] == "least squares":
        about.append("This one is significant by least squares only.")
    return Section(question, name + WORDS.say(first), about=about, pictures=["directions"])


def _directions(report: AuditReport, most: int) -> list[Table]:
    found = [(one, line) for one in report.reacting for line, _ in one.directions]
    found.sort(key=lambda entry: -abs(entry[1].in_sd))
    rows: list[list[Cell]] = []
    for one, line in found[:most]:
        j, k = (one.log.columns or ()).index(line.column), (one.log.parameters or ()).index(line.parameter)
        narrow, wide = (
            "–" if fit is None else span(fit.lower[j, k], fit.upper[j, k]) for fit in (one.least_squares, one.response)
        )
        by = (number(one.response.B[j, k]), f"{number(line.in_sd)} sd")
        rows.append([one.name, line.column, parameter(line.parameter), by, narrow, wide])
    head = ("client", "what moves", "per unit of", "by", "least squares", "any training")
    return [Table(head, rows)] if rows else []


def _sizes(clients: tuple[ClientReport, ...]) -> list[Table]:
    def size(found: Any) -> Cell:
        return (number(found.sensitivity), span(found.sensitivity_lower, found.sensitivity_upper)) if found else "–"

    rows: list[list[Cell]] = []
    for one in clients:
        if one.response.identified:
            slope, finite = w1_slope(one), one.detectable[np.isfinite(one.detectable)]
            power = span(finite.min(), finite.max()) if finite.size else "–"
            rows.append(
                [one.name, size(one.response), size(one.least_squares), "–" if slope is None else number(slope), power]
            )
    head = ("client", "sensitivity", "least squares", "slope of W₁", "detected with 90% power")
    return [Table(head, rows, [_SIZES])] if rows else []


def _ahead(report: AuditReport) -> Iterator[Section]:
    question, found, said = "Where does retraining lead?", report.prospect.outlook, report.said("outlook")
    if found is None:
        # A terminal gives the reason together with what to do next.
        yield Section(question, about=said, pictures=["models"])
        return
    answer = _SETTLES[found.settles] if found.stable is not None else "Nowhere: there is no stable point"
    # A terminal shows the first sentence in the verdict.
    about = 2 if report.prospect.fillings else 1
    yield Section(question, answer, about=said[:about], pictures=["models"])
    points = Table(("parameter", "now", "stable point", "optimum"), _points(report))
    yield Section("The points", tables=[Table(("outlook", ""), outlook_facts(report)), points])
    lines = report.prospect.drivers
    shares = [[line.name, percent(line.share), number(line.without)] for line in lines]
    table = Table(("client", "share", "factor without its reaction"), shares)
    if len(lines) > 1:
        yield Section("Who drives it?", said=said[about:], tables=[table], pictures=["drivers"])


def outlook_facts(report: AuditReport) -> list[tuple[str, str]]:
    """(what, value) lines of the outlook."""
    found, prospect = report.prospect.outlook, report.prospect
    assert found is not None
    sure = f"{100 * (1 - report.level):g}% interval"
    if prospect.fillings:
        sure = "over the assumptions about missing labels"
    until = "never, as it stands" if found.deployments is None else str(found.deployments)
    facts = [
        ("contraction factor", f"{number(found.contraction)}, {sure} {span(*found.contraction_limits)}"),
        (f"deployments until settled ({100 * found.tolerance:g}%)", until),
    ]
    if found.stable is not None:
        facts.append(("distance of the model from the stable point", number(distance(prospect.here, found.stable))))
    if found.optimal is not None and found.stable is not None:
        size = float(np.linalg.norm(found.stable))
        share = f" ({100 * found.gap / size:.3g}% of the stable point)" if size > 0 else ""
        facts.append(("gap to the optimum", f"{number(found.gap)}{share}"))
        cost = prospect.relative_cost
        least = "the least risk nearby" if prospect.optimal_is_local else "the least risk"
        share = "" if math.isnan(cost) else f" ({100 * cost:.2g}% of {least})"
        facts.append(("risk left on the table", f"{number(found.excess)}{share}"))
        if prospect.optimal_is_local:
            facts.append(("the optimum", "local, not shown to be global; see the notes"))
    return facts


def _points(report: AuditReport) -> list[list[Cell]]:
    """One row per parameter: name, now, stable point (with interval), optimum."""
    found, here = report.prospect.outlook, report.prospect.here
    assert found is not None and here is not None
    rows: list[list[Cell]] = []
    for k, name in enumerate(report.logs.deployments.parameters):
        stable = "none" if found.stable is None else number(found.stable[k])
        limits = "" if found.stable is None or found.stable_limits is None else span(*found.stable_limits[:, k])
        ends = [one.stable[k] for one in report.prospect.fillings if one.stable is not None]
        limits = f"{span(min(ends), max(ends))} over the assumptions about missing labels" if ends else limits
        optimal = "none" if found.optimal is None else number(found.optimal[k])
        rows.append([parameter(name), number(here[k]), (stable, limits), optimal])
    return rows


def _people(report: AuditReport, groups: GroupReport) -> Iterator[Section]:
    question = "Who gains, who pays?" if groups.reaction else "How did groups fare over time?"
    when = f"Before: {groups.before_is}. After: {groups.after_is}."
    yield Section(question, said=[when, *report.said("people")], pictures=["groups"])
    after = {rates.group: rates for rates in groups.after}
    rows: list[list[Cell]] = [
        [
            (rates.group, f"{rates.count:,} people before"),
            *(_change(rates, after.get(rates.group), name) for name in ("acceptance", "tpr", "tnr")),
        ]
        for rates in groups.before
    ]
    tables = [Table(("group", "accepted, before → after", "TPR", "TNR"), rows)]
    if groups.burden:
        costs: list[list[Cell]] = [
            [(one.group, f"{one.people:,} qualified"), (number(one.value), span(one.low, one.high)),
             f"{one.already:,}", f"{one.unreachable:,}"]
            for one in groups.burden
        ]  # fmt: skip
        cost = f"Burden: minimal cost of acceptance, averaged over the qualified; {groups.cost}."
        tables.append(Table(("group", "burden", "pay nothing", "cannot be accepted"), costs, [cost]))
    changes: list[list[Cell]] = [
        [one.group, *map(_points_of_change, (one.expected, one.observed, one.shortfall)), one.verdict]
        for one in groups.improvement
    ]
    head = ("group", "expected change", "observed", "shortfall", "verdict") if changes else ()
    tables.append(Table(head, changes, [groups.assumption]))
    yield Section("Groups before and after", tables=tables)
    about = ["As logged, each deployment under its own model. Bands are intervals for the group's rate."]
    if len(groups.by_deployment) > 1:
        yield Section("Acceptance over time", about=about, pictures=["acceptance"])


def _change(before: GroupRates, after: GroupRates | None, name: str) -> Cell:
    """A rate of a group before and after; if one is unknown, its bounds."""
    rates: list[Any] = [None if one is None else getattr(one, name) for one in (before, after)]
    if None not in rates:
        ends = " → ".join(f"{100 * rate.low:.0f}–{100 * rate.high:.0f}" for rate in rates)
        return " → ".join(percent(rate.value) for rate in rates), ends
    if after is None or name == "acceptance":
        return "unknown"
    low, high = getattr(after, f"{name}_bounds")
    return "unknown", f"after: {percent(low)} to {percent(high)}, whatever the missing labels are"


def _points_of_change(values: tuple[float, float, float]) -> Cell:
    value, low, high = (100 * v for v in values)
    return f"{value:+.1f} points", f"{low:+.1f} to {high:+.1f}"

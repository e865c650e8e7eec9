"""What an audit reports, as findings: the facts behind each sentence."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from performative.audit.audit_report import AuditReport
from performative.audit.client_report import ClientReport
from performative.audit.groups import GroupReport
from performative.findings import Finding, Severity

_MARK = "WARNING: "


def findings_of(report: AuditReport) -> tuple[Finding, ...]:
    """By group: loud, brief, verdict, client, moves, outlook, advice, people, note."""
    found = [*_loud(report), *_brief(report), *_verdict(report)]
    for one in report.clients:
        found += _client(one, report.level)
    found += [*_moves(report), *_outlook(report), *report.advice.why, *report.advice.robust]
    if report.groups is not None:
        found += _people(report.groups)
    return (*found, *_notes(report))


def _text(group: str, text: str) -> Finding:
    """A sentence from reading the logs."""
    return Finding(f"{group}.text", "warning" if group == "loud" else "info", {"text": text})


def _loud(report: AuditReport) -> Iterator[Finding]:
    """What must not be overlooked, above all how the rows were selected."""
    logs, chosen = report.logs, report.logs.selection
    if logs.blocked:
        yield _text("loud", logs.blocked)
    if chosen is not None and chosen.kind == "model" and chosen.method != "left out":
        facts = dataclasses.asdict(chosen)
        names = ("by", "p_value", "accepted", "rejected", "method", "source", "why", "coverage", "effective")
        yield Finding("loud.selection", "warning", {name: facts[name] for name in names})
    for note in logs.notes:
        if note.startswith(_MARK):
            yield _text("loud", note.removeprefix(_MARK))
    yield from report.groups.censoring.findings if report.groups else ()
    if report.drowned:
        others = len({(line.client, line.column) for line in report.drowned}) - 1
        yield Finding("loud.outliers", "warning", {**report.drowned[0]._asdict(), "others": others})


def _brief(report: AuditReport) -> Iterator[Finding]:
    """The four sentences of the first page, and the recommendation."""
    told = report.brief
    if told is None:
        return
    client = told.client if len(report.clients) > 1 else ""
    vague = [reason for one in report.clients for reason in one.effect.reasons]
    people = {
        "effect": report.effect, "hedged": report.hedged, "moved": told.moved.to_dict(), "in_sd": told.in_sd,
        "column": told.column, "client": client, "missed": told.missed,
        "why": report.logs.blocked or report.untested or (vague[0] if vague else ""),
    }  # fmt: skip
    yield Finding("brief.people", "caution" if report.effect is None else "info", people)
    decisions = {"acceptance": told.acceptance.to_dict(), "same_rule": told.same_rule}
    yield Finding("brief.decisions", "info", decisions)
    figures = {name: getattr(told, name).to_dict() for name in ("mistakes", "change", "money")}
    yield Finding("brief.mistakes", "info", {**figures, "cost": told.cost})
    ahead = {"effect": report.effect, "outlook": _settling(report), "excess": told.excess.to_dict()}
    yield Finding("brief.ahead", "info", {**ahead, "why": list(report.prospect.reasons)})
    reasons = report.advice.reasons
    yield Finding("brief.do", "info", {"title": report.advice.title, "reason": reasons[0] if reasons else ""})


def _verdict(report: AuditReport) -> Iterator[Finding]:
    """Do the data react, and if so, does retraining settle?"""

    def said(name: str, severity: Severity = "info", **data: Any) -> Finding:
        return Finding(f"verdict.{name}", severity, data)

    logs, clients = report.logs, len(report.clients)
    tested = sum(one.reacts is not None for one in report.clients)
    test: dict[str, Any] = {"p_value": report.p_value, "untested": clients - tested}
    method = None if logs.selection is None else logs.selection.method
    if logs.blocked:
        yield said("rows-chosen-by-model", "warning")
        return
    if report.effect is None:
        yield said("label-unknown", "caution", why=report.untested, **test) if tested else said("unknown", "caution")
        return
    if report.effect:
        reacting = sum(bool(one.reacts) for one in report.clients)
        yield said("reaction", reacting=reacting, clients=clients, drift=report.drift, **test)
        if report.hedged:
            yield said("drift-may-explain", "caution")
        if report.untested:
            yield said("label-not-tested", "caution", why=report.untested)
    else:
        yield said("no-reaction", several=clients > 1, features_only=method == "left out", **test)
    if logs.selection is not None and method == "always accepted":
        yield said("accepted-only", "caution", coverage=logs.selection.coverage)
    if report.effect:
        yield said("outlook", hedged=report.hedged, outlook=_settling(report))
        if report.prospect.fillings:
            yield said("outlook-assumes", "caution", **_assumed(report))


def _assumed(report: AuditReport) -> dict[str, Any]:
    """What was assumed about unobserved labels, and the contraction factor under each assumption."""
    chosen = report.logs.selection
    assert chosen is not None
    factors = {one.name: one.contraction for one in report.prospect.fillings}
    return {"share": chosen.share, "factors": factors, "complete": len(factors) == len(report.logs.fillings)}


def _settling(report: AuditReport) -> dict[str, Any] | None:
    """Does full retraining settle? None if that was not computed."""
    found = report.prospect.outlook
    if found is None:
        return None
    return {
        "stable": found.stable is not None,
        "settles": found.settles,
        "contraction": found.contraction,
        "limits": list(found.contraction_limits),
        "deployments": found.deployments,
        "tolerance": found.tolerance,
    }


def _client(one: ClientReport, level: float) -> Iterator[Finding]:
    """Do this client's data react, to what, and how certain is that?"""

    def said(name: str, severity: Severity = "info", **data: Any) -> Finding:
        return Finding(f"client.{name}", severity, {"client": one.name, **data})

    effect = one.effect
    p: dict[str, Any] = {"p_value": one.p_value, "adjusted": one.adjusted}
    if not effect.identified:
        yield said("unknown", "caution", reasons=list(effect.reasons))
        return
    others = {kind: found.p_value for kind, found in one.by_drift.items() if kind != effect.drift and found.identified}
    if one.reacts:
        shown = [_line(line) for line, _ in one.directions[:2]]
        yield said("reacts", column=effect.column, parameter=effect.parameter, directions=shown, **p)
        if weak := [kind for kind, value in others.items() if value > level]:
            yield said("rests-on-drift", "caution", drift=effect.drift, weak=weak)
        return
    yield said("no-reaction", **p)
    if one.p_value <= level:
        yield said("chance-among-many", "caution")
    elif strong := [kind for kind, value in others.items() if value <= level]:
        yield said("under-other-drift", "caution", drift=effect.drift, strong=strong)
    finite = one.detectable[np.isfinite(one.detectable)]
    if finite.size:
        yield said("detectable", low=float(finite.min()), high=float(finite.max()))


def _line(line: Any) -> dict[str, Any]:
    return {name: getattr(line, name) for name in ("column", "parameter", "slope", "in_sd")}


def _moves(report: AuditReport) -> list[Finding]:
    """Directions of all reacting clients, the largest first."""
    found = [(one, line, how) for one in report.reacting for line, how in one.directions]
    found.sort(key=lambda entry: -abs(entry[1].in_sd))
    if report.effect and not report.reacting and report.pooled is not None:
        return [Finding("moves.together", "info", {"column": report.pooled.effect.column})]
    return [
        Finding("moves.direction", "info", {"client": one.name, "method": how, **_line(line)})
        for one, line, how in found
    ]


def _outlook(report: AuditReport) -> Iterator[Finding]:
    found, lines = report.prospect.outlook, report.prospect.drivers
    if found is None:
        yield Finding("outlook.none", "info", {"reasons": list(report.prospect.reasons)})
        return
    yield Finding("outlook.settling", "info" if found.settles else "caution", {"outlook": _settling(report)})
    if report.prospect.fillings:
        yield Finding("outlook.assumes", "caution", _assumed(report))
    if len(lines) > 1:
        first = lines[0]
        names = ("name", "share", "lower", "upper", "leads", "without")
        yield Finding("outlook.driver", "info", {name: getattr(first, name) for name in names})


def _people(groups: GroupReport) -> Iterator[Finding]:
    """Who gains, who pays, and whether people improved; only change over time if no reaction was found."""
    if groups.by_deployment:
        yield Finding("people.over-time", "info", {"reaction": groups.reaction})
    for before, after in zip(groups.before, groups.after, strict=False):
        a, b = before.acceptance, after.acceptance
        if not (math.isnan(a.value) or math.isnan(b.value)):
            # Two 95% intervals: their half-widths add in quadrature in the interval of a difference.
            apart = abs(b.value - a.value) > math.hypot(a.high - a.low, b.high - b.low) / 2
            facts = {"group": before.group, "before": a.value, "after": b.value, "changed": bool(apart)}
            yield Finding("people.acceptance", "info", facts)
    if groups.bears is not None and math.isfinite(groups.gap) and _burdens_differ(groups):
        facts = {"group": groups.bears, "gap": groups.gap, "cost": groups.cost, "reaction": groups.reaction}
        yield Finding("people.burden", "info", facts)
    for line in groups.improvement:
        yield Finding("people.improvement", "info", {"group": line.group, "verdict": line.verdict})


def _burdens_differ(groups: GroupReport) -> bool:
    """Whether the largest burden exceeds the smallest by more than chance would explain."""
    known = [one for one in groups.burden if math.isfinite(one.value)]
    if len(known) < 2:
        return False
    most, least = max(known, key=lambda one: one.value), min(known, key=lambda one: one.value)
    return most.value - least.value > math.hypot(most.high - most.low, least.high - least.low) / 2


def _notes(report: AuditReport) -> Iterator[Finding]:
    """What was dropped or assumed, and what the outlook depends on."""
    logs, prospect = report.logs, report.prospect
    for note in logs.notes:
        if not note.startswith(_MARK):
            yield _text("note", note)
    if report.groups is not None:
        loud = report.groups.censoring.sentence()
        yield from (_text("note", warning) for warning in report.groups.warnings if warning != loud)
    for one in report.clients:
        if one.still:
            yield Finding("note.constant", "info", {"client": one.name, "columns": list(one.still)})
    if gone := [name for name in logs.clients if name not in {one.name for one in report.clients}]:
        yield Finding("note.nothing-varies", "info", {"clients": gone})
    for name, why in prospect.left_out[:5]:
        yield Finding("note.left-out", "caution", {"client": name, "why": why})
    if len(prospect.left_out) > 5:
        yield Finding("note.more-left-out", "caution", {"count": len(prospect.left_out) - 5})
    if prospect.outlook is None:
        return
    yield Finding("note.linear", "info", {"drift": prospect.drift})
    if logs.loss != "squared":
        yield Finding("note.loss", "info", {"loss": logs.loss, "penalty": logs.penalty})
    if prospect.optimal_is_local:
        yield Finding("note.local-optimum", "warning", {})

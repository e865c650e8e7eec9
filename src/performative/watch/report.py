"""What a watch has found, as data and as findings."""

import dataclasses
import math
from typing import Any

import numpy as np

from performative.findings import Finding, Plain, Severity, plain
from performative.watch.forecast import WatchForecast, forecast
from performative.watch.words import WORDS


@dataclasses.dataclass(frozen=True)
class Reaction(Plain):
    """How strongly a column reacts to a parameter, in column units per unit, with its confidence sequence."""

    client: str
    column: str
    parameter: str
    value: float
    low: float
    high: float
    log_evidence: float


@dataclasses.dataclass(frozen=True)
class WatchReport(Plain):
    """The result of `Watch.report`.

    Attributes:
        looks, rows: how many were used; alpha: the probability of a false alarm over all looks
        log_evidence: log E for a reaction; by_client: the same of each client
        reactions: of every client, column and parameter
        loss: {"value", "low", "high", "kind"} the mean loss under the deployed models, None without labels
        gap: {"most", "least", "value", "low", "high"} acceptance rates farthest apart, None without groups
        forecast: where retraining leads
        alarms: raised so far; input: counts of batches and rows, and what was quarantined
        history: points {"look", "log_evidence"} over all looks
        findings: all of it in sentences
    """

    looks: int
    rows: int
    drift: str
    alpha: float
    log_evidence: float
    by_client: dict[str, float]
    reactions: tuple[Reaction, ...]
    loss: dict[str, Any] | None
    gap: dict[str, Any] | None
    forecast: WatchForecast
    alarms: tuple[dict[str, Any], ...]
    input: dict[str, Any]
    history: tuple[dict[str, float], ...]
    findings: tuple[Finding, ...]

    @property
    def reacts(self) -> bool | None:
        """True once the evidence has reached 1/alpha; None before: no evidence is not evidence of no reaction."""
        return True if any(one["id"] == "reaction" for one in self.alarms) else None

    def to_dict(self) -> dict[str, Any]:
        told = {one.name: plain(getattr(self, one.name)) for one in dataclasses.fields(self) if one.name != "findings"}
        return {**told, "reacts": self.reacts, "findings": WORDS.to_json(self.findings)}

    def __str__(self) -> str:
        return "\n".join(text for one in self.findings if (text := WORDS.say(one)))


def make_report(watch: Any) -> WatchReport:
    """The report of a `Watch` in its current state."""
    alpha = watch.settings.alpha
    reactions = []
    for name, series in watch.series.items():
        found = series.strength(alpha)
        for i, parameter in enumerate(watch.schema.parameters):
            for j, column in enumerate(watch.schema.columns):
                numbers = (float(values[i, j]) for values in found)
                reactions.append(Reaction(name, column, parameter, *numbers))
    loss = None
    if watch.people.loss is not None and watch.people.loss.rows:
        value, low, high = watch.people.loss.interval(alpha)
        kind = "bounded" if hasattr(watch.people.loss, "high") else "asymptotic"
        loss = {"value": value, "low": low, "high": high, "kind": kind}
    tally = watch.tally
    report = WatchReport(
        looks=tally.looks,
        rows=tally.rows,
        drift=watch.settings.drift,
        alpha=alpha,
        log_evidence=watch.log_evidence(),
        by_client={name: watch.client_evidence(name) for name in watch.series},
        reactions=tuple(reactions),
        loss=loss,
        gap=watch.people.widest_gap(alpha),
        forecast=forecast(watch.models, alpha),
        alarms=tuple({name: value for name, value in one.items() if name != "told"} for one in watch.alarms.raised),
        input=tally.to_dict() | {"losses_outside": watch.people.outside, "groups_left_out": watch.people.left_out},
        history=tuple(watch.history.points),
        findings=(),
    )
    return dataclasses.replace(report, findings=tuple(_findings(report)))


def _findings(report: WatchReport) -> list[Finding]:
    found = [_verdict(report)]
    for one in report.alarms:
        if one["kind"] == "client reaction":
            found.append(Finding("client.reacts", "warning", {"client": one["client"], "look": one["look"]}))
    sure = [one for one in report.reactions if one.low > 0 or one.high < 0]
    strongest = sorted(sure, key=lambda one: -one.log_evidence)[:5]
    found += [Finding("reaction.strength", "info", vars(one)) for one in strongest]
    if report.reactions and not sure:
        ends = [max(abs(one.low), abs(one.high)) for one in report.reactions]
        blind = sum(not math.isfinite(end) for end in ends)
        if blind:
            found.append(Finding("advice.explore", "caution", {"blind": blind, "pairs": len(ends)}))
        else:
            found.append(Finding("reaction.at-most", "info", {"most": max(ends), "pairs": len(ends)}))
    found.append(_forecast(report.forecast))
    if report.loss is not None:
        found.append(Finding("people.loss", "info", report.loss))
    if report.gap is not None:
        wide = report.gap["low"] > 0
        found.append(Finding("people.gap", "caution" if wide else "info", {**report.gap, "wide": wide}))
    for one in report.alarms:
        if one["kind"] in ("loss", "gap"):
            found.append(Finding(f"alarm.{one['kind']}", "warning", {"limit": one["limit"], "look": one["look"]}))
    told = report.input
    if sum(told["quarantined"].values()):
        found.append(
            Finding("input.quarantined", "caution", {"counts": told["quarantined"], "last": told["recent"][-1]})
        )
    if told["dropped"]:
        found.append(Finding("input.dropped", "info", {"counts": told["dropped"]}))
    if told["late_rows"] or told["too_late"]:
        found.append(Finding("input.late", "info", {"rows": told["late_rows"], "too_late": told["too_late"]}))
    found.append(Finding("note.assumed", "info", {"drift": report.drift, "alpha": report.alpha}))
    return found


def _verdict(report: WatchReport) -> Finding:
    facts = {"evidence": float(np.exp(min(report.log_evidence, 700.0))), "looks": report.looks, "alpha": report.alpha}
    if report.reacts:
        at = next(one["look"] for one in report.alarms if one["id"] == "reaction")
        return Finding("verdict.reaction", "warning", {**facts, "at": at})
    return Finding("verdict.unknown", "info", facts)


def _forecast(told: WatchForecast) -> Finding:
    severity: Severity = "warning" if told.verdict == "runs away" else "info"
    return Finding(f"forecast.{told.verdict.replace(' ', '-')}", severity, vars(told))

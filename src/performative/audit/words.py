"""What an audit found, in sentences."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from performative.audit.advice import Advice
    from performative.audit.client_report import ClientReport
    from performative.audit.groups import GroupReport
    from performative.audit.outlook import Outlook
    from performative.audit.prospect import Prospect
    from performative.audit.reading import Logs
    from performative.audit.report import AuditReport
    from performative.audit.response import Direction


def verdict(report: "AuditReport") -> str:
    """Do the data react, and if so, does retraining settle?"""
    clients, tested = len(report.clients), sum(one.reacts is not None for one in report.clients)
    if report.effect is None:
        return "These logs cannot tell whether the data react to the model: it takes more deployments, or other models."
    if not report.effect:
        who = "any client" if clients > 1 else "the client"
        said = f"No reaction to the model was found at {who} ({chance(report.p_value)})"
        return f"{said}: as far as these logs show, retraining is ordinary retraining."
    reacting = [one.name for one in report.clients if one.reacts]
    at = f"at {len(reacting)} of {clients} clients" if clients > 1 else "here"
    if not reacting:
        at = "on the whole, though no one client can be named"
    untested = f", {clients - tested} could not be tested" if tested < clients else ""
    said = f"The data react to the model {at} ({chance(report.p_value)}{untested})."
    return f"{said} {settling(report.prospect.outlook)}"


def settling(found: "Outlook | None") -> str:
    """Does full retraining settle?"""
    if found is None:
        return "Where retraining leads was not computed."
    factor = f"each retraining multiplies the error by {number(found.contraction)}"
    limits = found.contraction_limits
    if limits is not None:
        factor += f" ({number(limits[0])} to {number(limits[1])})"
    if found.stable is None:
        return "Retraining has no stable point."
    if settles(found) is None:
        leans = "it seems to settle" if found.contraction < 1 else "it seems not to settle"
        return f"Whether retraining settles cannot be told, {leans}: {factor}."
    if not settles(found):
        return f"Retraining does not settle: {factor}."
    if found.deployments is None:
        return f"Retraining settles: {factor}."
    if found.deployments == 0:
        return f"Retraining has settled, within {100 * found.tolerance:g} %: {factor}."
    more = f"{found.deployments} more deployment{'s' if found.deployments > 1 else ''}"
    return f"Retraining settles within {100 * found.tolerance:g} % after about {more}: {factor}."


def settles(found: "Outlook") -> bool | None:
    """None where the limits of the factor hold 1."""
    low, high = found.contraction_limits or (found.contraction, found.contraction)
    return None if low < 1 <= high else found.contraction < 1


def client_verdict(one: "ClientReport", level: float) -> str:
    """Does this client's data react, to what, and how sure is it?"""
    effect = one.effect
    if not effect.identified:
        return f"Cannot tell: {sentences(effect.reasons)}"
    p = chance(one.p_value)
    if chance(one.adjusted) != p:
        p += f"; {chance(one.adjusted)} counting all tests"
    others = {kind: found for kind, found in one.by_drift.items() if kind != effect.drift and found.identified}
    if one.reacts:
        said = f"Reacts ({p}): {moves(one)}."
        weak = [kind for kind, found in others.items() if found.p_value > level]
        if weak:
            said += f" This rests on drift={effect.drift!r}: under {_listed(weak)} it could be drift."
        return said
    said = f"No reaction found ({p})."
    if one.p_value <= level:
        return f"{said} By itself it would count as one; among all the tests made it may be chance. {seen(one)}"
    strong = [kind for kind, found in others.items() if found.p_value <= level]
    if strong:
        said += f" Under {_listed(strong)} it would count as one by itself, but drift={effect.drift!r} explains it too."
    return f"{said} {seen(one)}"


def moves(one: "ClientReport") -> str:
    """What moves, by how much."""
    lines = directions(one)
    if one.effect.column.startswith("cov("):
        first, last = one.effect.column[4:-1].rsplit(", ", 1)
        what = f"the relation between {first} and {last} answers to {parameter(one.effect.parameter)}"
        return what if not lines else f"{what}, and {direction(lines[0][0])}"
    if not lines:
        return f"{one.effect.column} answers to the model; to which parameter, and how much, is not clear"
    return "; ".join(direction(line) for line, _ in lines[:2])


def directions(one: "ClientReport") -> list[tuple["Direction", str]]:
    """Directions whose interval excludes 0, with the method: those that hold however models were trained come first."""
    found = [(line, "exact") for line in one.response.directions]
    known = {(line.column, line.parameter) for line, _ in found}
    usual = one.least_squares.directions if one.least_squares is not None else ()
    return found + [(line, "least squares") for line in usual if (line.column, line.parameter) not in known]


def direction(line: "Direction") -> str:
    how = "rises" if line.slope > 0 else "falls"
    by = f"{number(abs(line.slope))} ({number(abs(line.in_sd))} sd)"
    return f"{line.column} {how} by {by} per unit of {parameter(line.parameter)}"


def told(report: "AuditReport") -> list["ClientReport"]:
    """Clients whose directions are worth telling: those that react, or all where only all together do."""
    if not report.effect:
        return []
    return [one for one in report.clients if one.reacts] or list(report.clients)


def direction_rows(report: "AuditReport", most: int, digits: int = 3) -> list[list[str]]:
    """client, column, parameter, slope, in deviations, least squares interval, interval that holds for any training.

    digits: of the intervals.
    """
    found = [(one, line) for one in told(report) for line, _ in directions(one)]
    found.sort(key=lambda entry: -abs(entry[1].in_sd))
    rows = []
    for one, line in found[:most]:
        j, k = (one.log.columns or ()).index(line.column), (one.log.parameters or ()).index(line.parameter)
        usual = one.least_squares
        narrow = "–" if usual is None else span(usual.lower[j, k], usual.upper[j, k], digits)
        wide = span(one.response.lower[j, k], one.response.upper[j, k], digits)
        rows.append(
            [
                one.name,
                line.column,
                parameter(line.parameter),
                number(one.response.B[j, k]),
                number(line.in_sd),
                narrow,
                wide,
            ]
        )
    return rows


def seen(one: "ClientReport") -> str:
    """The smallest effect that could have been seen."""
    finite = one.detectable[np.isfinite(one.detectable)]
    if not finite.size:
        return ""
    low, high = float(finite.min()), float(finite.max())
    span = number(low) if high <= 1.05 * low else f"{number(low)} (best case) to {number(high)} (worst)"
    return f"A response of {span} sd per unit of a parameter would have been seen with 90 % power."


def outlook_facts(report: "AuditReport") -> list[tuple[str, str]]:
    """(what, value) lines of the outlook."""
    found, prospect = report.prospect.outlook, report.prospect
    if found is None:
        return []
    sure = f"{100 * (1 - report.level):g} % interval"
    facts = []
    limits = "" if found.contraction_limits is None else f", {sure} {span(*found.contraction_limits)}"
    facts.append(("contraction factor", f"{number(found.contraction)}{limits}"))
    until = "never, as it stands" if found.deployments is None else str(found.deployments)
    facts.append((f"deployments until settled ({100 * found.tolerance:g} %)", until))
    if found.stable is not None:
        facts.append(
            ("distance of the model now from the stable point", number(_distance(prospect.here, found.stable)))
        )
    if found.optimal is not None and found.stable is not None:
        size = float(np.linalg.norm(found.stable))
        share = f" ({100 * found.gap / size:.3g} % of the stable point)" if size > 0 else ""
        facts.append(("gap to the optimum", f"{number(found.gap)}{share}"))
        cost = prospect.relative_cost
        share = "" if math.isnan(cost) else f" ({100 * cost:.2g} % of the least risk)"
        facts.append(("risk left on the table", f"{number(found.excess)}{share}"))
    return facts


def outlook_rows(report: "AuditReport") -> list[list[str]]:
    """One row a parameter: name, now, stable point (with interval), optimum."""
    found, prospect = report.prospect.outlook, report.prospect
    if found is None or prospect.here is None:
        return []
    rows = []
    for k, name in enumerate(report.logs.deployments.parameters):
        stable = "none" if found.stable is None else number(found.stable[k])
        if found.stable is not None and found.stable_limits is not None:
            stable += f" ({span(*found.stable_limits[:, k])})"
        optimal = "none" if found.optimal is None else number(found.optimal[k])
        rows.append([parameter(name), number(prospect.here[k]), stable, optimal])
    return rows


def driver_sentence(report: "AuditReport") -> str:
    """Which client drives the retraining."""
    lines = report.prospect.drivers
    if not lines:
        return ""
    first = lines[0]
    if len(lines) == 1:
        return ""
    if math.isnan(first.share):
        return "No client drives it: the slope of retraining is 0."
    against = "; others pull against it" if first.share > 1.005 else ""
    return (
        f"{first.name} drives it most: {100 * first.share:.0f} % of the contraction factor{against}. Were its data to "
        f"stay, the factor would be {number(first.without)}."
    )


def robust_sentences(advice: "Advice") -> list[str]:
    """Rows and clients that do not belong with the others."""
    said = []
    if advice.far_out:
        client, column, share = advice.far_out[0]
        more = f", and {len(advice.far_out) - 1} more such columns" if len(advice.far_out) > 1 else ""
        said.append(
            f"{100 * share:.1f} % of the rows of {client} lie far out in {column}{more}: errors, or a long tail. "
            "Filtered estimators (pf.estimators.Filtered) leave out gradients that do not belong."
        )
    if advice.odd_clients:
        names = ", ".join(advice.odd_clients[:5])
        said.append(
            f"Far from all other clients: {names}. The median of updates (pf.aggregators.Median) is what few clients "
            "cannot move far."
        )
    return said


def outlook_notes(logs: "Logs", prospect: "Prospect") -> list[str]:
    """What the outlook rests on."""
    notes = [f"Not in the outlook: {name}, because {why.rstrip('.')}." for name, why in prospect.left_out[:5]]
    if len(prospect.left_out) > 5:
        notes.append(f"Not in the outlook: {len(prospect.left_out) - 5} more clients.")
    if prospect.outlook is None:
        return notes
    trend = "" if prospect.drift == "none" else " The straight part of the drift is taken out, and to stop now."
    notes.append(
        f"The outlook takes the response as linear and to stay as it is, and retraining to go to the end.{trend}"
    )
    if logs.loss != "squared":
        notes.append(
            f"The {logs.loss} loss with penalty {logs.penalty:g} on all parameters is minimised; the outlook then has "
            "no intervals, and the rows are taken to move without changing their shape."
        )
    return notes


def group_sentences(groups: "GroupReport") -> list[str]:
    """Who gains, who pays, and whether people became better."""
    said = []
    for before, after in zip(groups.before, groups.after, strict=False):
        a, b = before.acceptance, after.acceptance
        if not (math.isnan(a.value) or math.isnan(b.value)):
            # Two 95 % intervals: their half widths add like the sides of a right angle in the interval of a difference.
            apart = abs(b.value - a.value) > math.hypot(a.high - a.low, b.high - b.low) / 2
            word = "rises" if b.value > a.value else "falls"
            change = f"{word} from {percent(a.value)} to {percent(b.value)}" if apart else (
                f"is not seen to change ({percent(a.value)}, then {percent(b.value)})"
            )  # fmt: skip
            said.append(f"Acceptance of group {before.group} {change}.")
    if groups.bears is not None and math.isfinite(groups.gap) and _burdens_differ(groups):
        said.append(
            f"Qualified people of group {groups.bears} bear the largest burden, {number(groups.gap)} more than the "
            f"least (cost: {groups.cost})."
        )
    verdicts = {
        "improvement": "became better qualified, as the features promise",
        "gaming": "look better than they are: gaming",
        "both": "became better qualified, but less than the features promise",
        "unclear": "moved, but whether they became better qualified cannot be told",
        "no move": "are not seen to move in ways that bear on qualification",
    }
    said += [f"People of group {line.group} {verdicts[line.verdict]}." for line in groups.improvement]
    return said


def _burdens_differ(groups: "GroupReport") -> bool:
    """Whether the largest burden is above the smallest by more than chance."""
    known = [one for one in groups.burden if math.isfinite(one.value)]
    if len(known) < 2:
        return False
    most, least = max(known, key=lambda one: one.value), min(known, key=lambda one: one.value)
    return most.value - least.value > math.hypot(most.high - most.low, least.high - least.low) / 2


def sentences(parts: Any) -> str:
    """Reasons one after the other, each with a capital letter and a full stop."""
    return " ".join(part[:1].upper() + part[1:].rstrip(".") + "." for part in parts if part)


def parameter(name: str) -> str:
    """As the files call it, so that it is not taken for the feature of that name."""
    return f"theta_{name}"


def chance(p: float) -> str:
    """A p-value."""
    return "p < 0.0001" if p < 1e-4 else f"p = {p:.2g}"


def number(value: Any, digits: int = 3) -> str:
    """A few digits; rounding errors around zero are zero."""
    value = float(value)
    if math.isnan(value):
        return "not known"
    if math.isinf(value):
        return "unlimited" if value > 0 else "-unlimited"
    return "0" if abs(value) < 1e-12 else f"{value:.{digits}g}"


def percent(value: float) -> str:
    return "not known" if math.isnan(value) else f"{100 * value:.1f} %"


def span(low: Any, high: Any, digits: int = 3) -> str:
    return f"{number(low, digits)} to {number(high, digits)}"


def _listed(kinds: list[str]) -> str:
    named = [repr(kind) for kind in kinds]
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"


def _distance(here: Any, there: Any) -> float:
    return float(np.linalg.norm(np.asarray(here) - np.asarray(there)))

"""What an audit found, in sentences."""

from typing import TYPE_CHECKING

import numpy as np

from performative.audit.formats import chance, listed, number, parameter, sentences, span
from performative.audit.outlook_words import settling
from performative.audit.people_words import about_label, features_only

if TYPE_CHECKING:
    from performative.audit.advice import Advice
    from performative.audit.client_report import ClientReport
    from performative.audit.report import AuditReport
    from performative.audit.response import Direction


def verdict(report: "AuditReport") -> str:
    """Do the data react, and if so, does retraining settle?"""
    clients, tested = len(report.clients), sum(one.reacts is not None for one in report.clients)
    left = f", {clients - tested} could not be tested" if tested < clients else ""
    p = f"({chance(report.p_value)}{left})"
    if report.logs.blocked:
        return "These logs cannot tell whether the data react to the model: which rows they hold changes with it."
    if report.effect is None and tested:
        said = f"No reaction of the features was found {p}. Whether the label reacts cannot be told"
        return f"{said}: {report.untested}."
    if report.effect is None:
        return "These logs cannot tell whether the data react to the model: it takes more deployments, or other models."
    if not report.effect:
        who = "any client" if clients > 1 else "the client"
        of = " of the features" if features_only(report.logs) else ""
        said = f"No reaction{of} to the model was found at {who} {p}"
        return f"{said}: as far as these logs show, retraining is ordinary retraining.{about_label(report.logs)}"
    reacting = [one.name for one in report.clients if one.reacts]
    at = f"at {len(reacting)} of {clients} clients" if clients > 1 else "here"
    if not reacting:
        at = "on the whole, though no one client can be named"
    if_drift = "" if report.drift == "smooth" else f", if there was no drift but {DRIFT_WORDS[report.drift]}"
    said = f"The data react to the model {at} {p}{if_drift}."
    if hedged(report):
        said += (
            " But the models moved as the data did, so a drift that bends or settles in the same way would look the "
            "same: it takes a model deployed off that path, by a random step, to be sure."
        )
    if report.untested:
        said += f" The label was not tested: {report.untested}."
    ahead = settling(report.prospect.outlook)
    ahead = f"If they do react: {ahead[0].lower()}{ahead[1:]}" if hedged(report) else ahead
    return f"{said}{about_label(report.logs)} {ahead}"


DRIFT_WORDS = {"none": "sampling noise", "linear": "a straight line", "walk": "a random walk", "smooth": "smooth drift"}


def hedged(report: "AuditReport") -> bool:
    """Whether an effect was found that drift alone, as large as all that moved, would explain too."""
    return bool(report.effect) and report.p_any_drift > report.level


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
            said += f" This rests on drift={effect.drift!r}: under {listed(weak)} it could be drift."
        return said
    said = f"No reaction found ({p})."
    if one.p_value <= level:
        return f"{said} By itself it would count as one; among all the tests made it may be chance. {seen(one)}"
    strong = [kind for kind, found in others.items() if found.p_value <= level]
    if strong:
        said += f" Under {listed(strong)} it would count as one by itself, but drift={effect.drift!r} explains it too."
    return f"{said} {seen(one)}"


def moves(one: "ClientReport") -> str:
    """What moves, by how much."""
    lines = directions(one)
    if one.effect.column.startswith("cov("):
        first, last = one.effect.column[4:-1].rsplit(", ", 1)
        what = (
            f"the relation between {first} and {last} responds to the model, most to {parameter(one.effect.parameter)}"
        )
        return what if not lines else f"{what}, and {direction(lines[0][0])}"
    if not lines:
        return f"{one.effect.column} responds to the model; to which parameter, and how strongly, is not clear"
    return "; ".join(direction(line) for line, _ in lines[:2])


def directions(one: "ClientReport") -> list[tuple["Direction", str]]:
    """Directions whose interval excludes 0, with the method: those that hold however models were trained come first.

    Only of a client that reacts, and of columns that the test names with all columns counted (Holm).
    """
    if not one.reacts:
        return []
    level = 1 - one.response.level
    named = {name for name, p in zip(one.tested, one.effect.by_column, strict=True) if p <= level}
    found = [(line, "exact") for line in one.response.directions if line.column in named]
    known = {(line.column, line.parameter) for line, _ in found}
    usual = one.least_squares.directions if one.least_squares is not None else ()
    usual = tuple(line for line in usual if line.column in named and (line.column, line.parameter) not in known)
    return found + [(line, "least squares") for line in usual]


def direction(line: "Direction") -> str:
    how = "rises" if line.slope > 0 else "falls"
    by = f"{number(abs(line.slope))} ({number(abs(line.in_sd))} sd)"
    return f"{line.column} {how} by {by} per unit of {parameter(line.parameter)}"


def told(report: "AuditReport") -> list["ClientReport"]:
    """Clients whose directions are worth telling: those that react."""
    return [one for one in report.clients if one.reacts] if report.effect else []


def whole(report: "AuditReport") -> str:
    """What responds to the model where the response shows only over all clients together."""
    if not report.effect or told(report) or report.pooled is None:
        return ""
    found = report.pooled.effect
    said = f"Over all clients together, {found.column} responds to the model"
    return f"{said}; at which of them, and how strongly, is not clear."


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

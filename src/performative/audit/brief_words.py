"""The first page in words: four sentences and a recommendation, free of statistical jargon."""

import math
from collections.abc import Callable
from typing import Any

from performative.audit.formats import number, span

Facts = dict[str, Any]


def _within(figure: Facts, digits: int = 3) -> str:
    return f"({span(figure['low'], figure['high'], digits)})"


def _known(figure: Facts) -> bool:
    return figure["low"] is not None and figure["high"] is not None


def people(
    effect: bool | None,
    hedged: bool,
    moved: Facts,
    in_sd: float | None,
    column: str,
    client: str,
    missed: float | None,
    why: str,
) -> str:
    """Does the model change the people it judges?"""
    if effect is None:
        because = why.rstrip(".")
        return f"These logs cannot tell whether the model changes the people it judges{': ' + because if why else ''}."
    if not effect:
        seen = ""
        if missed is not None and math.isfinite(missed):
            seen = f"; a shift of {number(missed, 2)} standard deviations would have been detected nine times in ten"
        return f"Nothing shows that the model changes the people it judges{seen}."
    start = "It looks as if the model changed" if hedged else "The model changes"
    if not column or not _known(moved):
        return f"{start} the people it judges overall; no single column can be named."
    at = f" at {client}" if client else ""
    size = math.nan if in_sd is None else in_sd
    by = f"by {number(moved['value'])} {_within(moved)}, {number(size, 2)} standard deviations"
    rest = "; a drift of the same shape would look the same" if hedged else ""
    return f"{start} the people it judges: {column}{at} moves {by}, over the range of deployed models{rest}."


def decisions(acceptance: Facts, same_rule: bool) -> str:
    """What that does to who is accepted."""
    if not _known(acceptance):
        return f"Its effect on decisions is unknown: {acceptance['why']}."
    value, within = acceptance["value"], _within(acceptance)
    if acceptance["low"] <= 0 <= acceptance["high"]:
        rule = "under the last model" if same_rule else "by their own models"
        change = f"no change in acceptance was detected: {value:+.1f} points {within}"
        return f"Between the first people and the last, {rule}, {change}."
    more = "more" if value > 0 else "fewer"
    if same_rule:
        return (
            f"Out of 100 people, the last model accepts {number(abs(value), 2)} {more} {within} than it would have "
            "of the people at the start: the people changed."
        )
    return (
        f"Out of 100 people, {number(abs(value), 2)} {more} {within} are accepted than at the start, through changes "
        "in people and models together."
    )


def mistakes(mistakes: Facts, change: Facts, money: Facts, cost: float | None) -> str:
    """How many decisions are wrong, and what that costs."""
    if not _known(mistakes):
        return f"How many decisions are mistakes is unknown: {mistakes['why']}."
    if mistakes["bounds"]:
        said = f"Between {number(mistakes['low'], 2)} and {number(mistakes['high'], 2)} of 100 decisions are mistakes"
        said += ": outcomes of the rejected are unknown"
    else:
        said = f"Out of 100 decisions, {number(mistakes['value'], 2)} {_within(mistakes, 2)} are mistakes"
        if _known(change):
            said += f", {change['value']:+.1f} points {_within(change, 2)} since the start"
    if cost is None or not _known(money):
        return f"{said}."
    low, high = (f"{money[name]:,.0f}" for name in ("low", "high"))
    return f"{said}; at {cost:,.6g} each they cost {low} to {high} per 1,000 decisions."


def ahead(effect: bool | None, outlook: Facts | None, excess: Facts, why: list[str]) -> str:
    """Where retraining leads, and what ignoring the reaction costs."""
    if effect is None:
        return "Until that is known, nobody can say where retraining leads."
    if not effect:
        return "As far as these logs show, this is ordinary retraining: it follows the people but does not move them."
    if outlook is None:
        reason = why[0].rstrip(".") if why else ""
        return f"Where retraining leads is unknown{': ' + reason if reason else ''}."
    if not outlook["stable"]:
        return "Retraining has no stable point: no model remains the best one for the data it induces."
    settles, left = outlook["settles"], outlook["deployments"]
    said = {
        True: "Retraining settles" + (f" after about {left} more deployment{'s' * (left > 1)}" if left else ""),
        False: "Retraining does not settle: each new model moves people further than the one before",
        None: "It is too early to tell whether retraining settles",
    }[settles]
    if excess["value"] is None:
        return f"{said}; what ignoring the reaction costs is unknown."
    return (
        f"{said}; ignoring the reaction costs {100 * excess['value']:.2g}% more loss than the best model would incur."
    )


def do(title: str, reason: str) -> str:
    """The recommendation."""
    return f"{title}. {reason}".strip()


SENTENCES: dict[str, Callable[..., str]] = {
    "brief.people": people,
    "brief.decisions": decisions,
    "brief.mistakes": mistakes,
    "brief.ahead": ahead,
    "brief.do": do,
}

"""Whose rows and labels an audit saw, and who gains and who pays, in sentences."""

import math
from typing import TYPE_CHECKING

from performative._base.messages import coded
from performative.audit.formats import chance, number, percent

if TYPE_CHECKING:
    from performative.audit.client_report import ClientReport
    from performative.audit.groups import GroupReport
    from performative.audit.reading import Logs


# How the model's part in who has a label shows: in who was accepted, or in a pattern that changes with the model.
_DECIDED = ("the model decided whose label is known", "whose label is known changes between deployments")


def untested(logs: "Logs", clients: "tuple[ClientReport, ...]") -> str:
    """Why the label, or some client's, could not be tested; "" where it was, or where there is none to test."""
    found = logs.selection
    if logs.blocked or found is None or found.method == "left out" or logs.label is not None:
        return ""
    if found.method == "withheld":
        return _DECIDED[int(found.by != "acceptance")] if found.kind == "model" else found.why
    without = [one.name for one in clients if one.effect.identified and "label" not in one.tested]
    return f"labels are too few at {', '.join(without[:5])}" if without else ""


def features_only(logs: "Logs") -> bool:
    return logs.selection is not None and logs.selection.method == "left out"


def about_label(logs: "Logs") -> str:
    """Whom the test of the label is about, where that is not everybody."""
    found = logs.selection
    if found is None or found.method != "always accepted":
        return ""
    share = f"{found.coverage:.0%} of all or more"
    return f" What is said of the label is about people whom every deployed model accepts, {share}."


def loud(logs: "Logs") -> list[str]:
    """What must not be overlooked in how the rows were chosen."""
    said = [logs.blocked] if logs.blocked else []
    found = logs.selection
    if found is None or found.kind != "model" or found.method == "left out":
        return said
    if found.by == "acceptance":
        shares = f"{percent(found.accepted)} of the accepted have one, {percent(found.rejected)} of the rejected"
        seen = f"{_DECIDED[0]}: {shares}"
    else:
        seen = f"{_DECIDED[1]}: it goes with {found.by}, not in the same way under all ({chance(found.p_value)})"
    least, most = found.effective
    done = {
        "withheld": f"The label is not tested, only the features, which are logged for everybody: {found.why}",
        "weighted": (
            f"The label is tested on rows weighted by 1 / the chance of a label, {found.source}: they stand for "
            f"everybody, with {least:,.0f} to {most:,.0f} effective rows of a client under a deployment"
        ),
        "always accepted": (
            f"The label is tested among people whom every deployed model accepts, {found.coverage:.0%} of all or more, "
            f"with {least:,.0f} to {most:,.0f} rows of a client under a deployment; of the others nothing is said"
        ),
    }[found.method]
    text = f"{seen}. Rows with a label change when the model does, whether or not anybody reacts. {done}."
    return [*said, coded("selection-by-model", text[0].upper() + text[1:])]


def group_sentences(groups: "GroupReport") -> list[str]:
    """Who gains, who pays, and whether people became better; only change over time where no reaction was found."""
    said = []
    if groups.by_deployment:
        said.append(
            {
                True: "What changed between the first deployment and the last is the reaction and drift together.",
                False: "No reaction was found, so no gain and no cost is put down to one: this is change over time.",
                None: "Whether people react cannot be told, so no gain and no cost is put down to a reaction: this is "
                "change over time.",
            }[groups.reaction]
        )
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
        who = f"Qualified people of group {groups.bears}"
        most = (
            "bear the largest burden"
            if groups.reaction
            else "would have to move most to be accepted, whether or not they do"
        )
        said.append(f"{who} {most}, {number(groups.gap)} more than the least (cost: {groups.cost}).")
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

"""Where retraining leads, in sentences."""

import math
from typing import TYPE_CHECKING

import numpy as np

from performative.audit.formats import distance, number, parameter, span

if TYPE_CHECKING:
    from performative.audit.outlook import Outlook
    from performative.audit.prospect import Prospect
    from performative.audit.reading import Logs
    from performative.audit.report import AuditReport


def settling(found: "Outlook | None") -> str:
    """Does full retraining settle?"""
    if found is None:
        return "Where retraining leads was not computed."
    factor = f"each retraining multiplies the error by {number(found.contraction)}"
    low, high = found.contraction_limits
    factor += f" ({number(low)} to {number(high)})"
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
    low, high = found.contraction_limits
    return None if low < 1 <= high else found.contraction < 1


def outlook_facts(report: "AuditReport") -> list[tuple[str, str]]:
    """(what, value) lines of the outlook."""
    found, prospect = report.prospect.outlook, report.prospect
    if found is None:
        return []
    sure = f"{100 * (1 - report.level):g} % interval"
    facts = []
    facts.append(("contraction factor", f"{number(found.contraction)}, {sure} {span(*found.contraction_limits)}"))
    until = "never, as it stands" if found.deployments is None else str(found.deployments)
    facts.append((f"deployments until settled ({100 * found.tolerance:g} %)", until))
    if found.stable is not None:
        facts.append(("distance of the model now from the stable point", number(distance(prospect.here, found.stable))))
    if found.optimal is not None and found.stable is not None:
        size = float(np.linalg.norm(found.stable))
        share = f" ({100 * found.gap / size:.3g} % of the stable point)" if size > 0 else ""
        facts.append(("gap to the optimum", f"{number(found.gap)}{share}"))
        cost = prospect.relative_cost
        least = "the least risk nearby" if prospect.optimal_is_local else "the least risk"
        share = "" if math.isnan(cost) else f" ({100 * cost:.2g} % of {least})"
        facts.append(("risk left on the table", f"{number(found.excess)}{share}"))
        if prospect.optimal_is_local:
            facts.append(("the optimum", "a local one, not shown to be the best of all; see the notes"))
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
    share = (
        f"{100 * first.share:.0f} % of the contraction factor ({100 * first.lower:.0f} to {100 * first.upper:.0f} %)"
    )
    if first.leads < 0.95:
        return f"Which client drives it most cannot be told; {first.name} seems to, with {share}."
    against = "; others pull against it" if first.share > 1.005 else ""
    return (
        f"{first.name} drives it most: {share}{against}. Were its data to stay, the factor would be "
        f"{number(first.without)}."
    )


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
            f"The {logs.loss} loss with penalty {logs.penalty:g} on all parameters is minimized; the points then "
            "have no intervals, and the rows are taken to move without changing their shape."
        )
    if prospect.optimal_is_local:
        notes.append(
            "The optimum is a local one: the best model found near those deployed, not the best of all. Far from them "
            "the fitted risk falls again, because it takes people to react in proportion however far the model goes. "
            "These logs do not show that they would; do not deploy such a model on the strength of this fit. The gap "
            "to the optimum and the risk left on the table count from the local one."
        )
    return notes


def no_outlook(effect: bool | None, why: str) -> str:
    """Why no outlook was computed where no effect was found."""
    if effect is None:
        return f"it cannot be told whether the data react{': ' + why if why else ''}."
    return "no effect was found, so as far as these logs show retraining is ordinary retraining."

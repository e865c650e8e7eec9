"""What the tables of an audit show."""

import math

import numpy as np

from performative.audit.audit_report import AuditReport
from performative.audit.formats import distance, number, parameter, span


def direction_rows(report: AuditReport, most: int, digits: int = 3) -> list[list[str]]:
    """client, column, parameter, slope, in deviations, least squares interval, interval that holds for any training.

    Args:
        digits: of the intervals.
    """
    found = [(one, line) for one in report.reacting for line, _ in one.directions]
    found.sort(key=lambda entry: -abs(entry[1].in_sd))
    rows = []
    for one, line in found[:most]:
        j, k = (one.log.columns or ()).index(line.column), (one.log.parameters or ()).index(line.parameter)
        narrow, wide = (
            "–" if fit is None else span(fit.lower[j, k], fit.upper[j, k], digits)
            for fit in (one.least_squares, one.response)
        )
        size = (number(one.response.B[j, k]), number(line.in_sd))
        rows.append([one.name, line.column, parameter(line.parameter), *size, narrow, wide])
    return rows


def outlook_facts(report: AuditReport) -> list[tuple[str, str]]:
    """(what, value) lines of the outlook."""
    found, prospect = report.prospect.outlook, report.prospect
    if found is None:
        return []
    sure = f"{100 * (1 - report.level):g} % interval"
    until = "never, as it stands" if found.deployments is None else str(found.deployments)
    facts = [
        ("contraction factor", f"{number(found.contraction)}, {sure} {span(*found.contraction_limits)}"),
        (f"deployments until settled ({100 * found.tolerance:g} %)", until),
    ]
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


def outlook_rows(report: AuditReport) -> list[list[str]]:
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

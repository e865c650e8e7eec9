"""The figures of the first page, computed from the report."""

import math
from typing import Any

import numpy as np
from scipy import stats

from performative.audit.advice import could_have_missed
from performative.audit.audit_report import AuditReport
from performative.audit.brief import Brief, Figure, unknown
from performative.audit.client_report import ClientReport
from performative.audit.rates import Rate, wilson
from performative.audit.response import Direction
from performative.audit.tally import NOT_QUALIFIED, QUALIFIED, UNKNOWN

_ACCEPTED, _REJECTED = 1, 0


def brief_of(report: AuditReport, cost: float | None = None) -> Brief:
    """The figures of the first page.

    Args:
        cost: of a mistake, in money; None if not given
    """
    moved, in_sd, column, client = _moved(report)
    acceptance, same_rule = _acceptance(report)
    mistakes, change = _mistakes(report)
    return Brief(
        moved, in_sd, column, client, could_have_missed(report.clients), acceptance, same_rule, mistakes, change,
        _money(mistakes, cost), cost, _excess(report),
    )  # fmt: skip


def strongest(report: AuditReport) -> tuple[ClientReport, Direction, float] | None:
    """The client and the direction that moved the data most, and the range of the models along it."""
    best, found = 0.0, None
    for one in report.reacting:
        way = np.ptp(one.log.theta, axis=0)
        for line, _ in one.directions:
            width = float(way[(one.log.parameters or ()).index(line.parameter)])
            if abs(line.in_sd) * width > best:
                best, found = abs(line.in_sd) * width, (one, line, width)
    return found


def _moved(report: AuditReport) -> tuple[Figure, float, str, str]:
    found = strongest(report)
    if found is None:
        return unknown("", "no column is known to follow the models"), math.nan, "", ""
    one, line, width = found
    low, high = sorted((abs(line.lower) * width, abs(line.upper) * width))
    return Figure(abs(line.slope) * width, low, high, line.column), abs(line.in_sd) * width, line.column, one.name


def _acceptance(report: AuditReport) -> tuple[Figure, bool]:
    unit, groups = "points", report.groups
    if groups is None:
        return unknown(unit, "decisions were not logged: log `accepted`, or set [decision] threshold"), False
    pairs = [_joint(side) for side in (groups.before, groups.after)]
    same_rule = report.logs.rule is not None and "under the model of" in groups.before_is
    if any(trials == 0 for _, trials in pairs):
        return unknown(unit, "no decision is known"), same_rule
    first, last = (wilson(hits, trials, 1 - report.level) for hits, trials in pairs)
    gap, low, high = _difference(first, last)
    return Figure(100 * gap, 100 * low, 100 * high, unit), same_rule


def _difference(first: Rate | Figure, last: Rate | Figure) -> tuple[float, float, float]:
    """last - first with Newcombe's interval for a difference of two proportions (1998, method 10)."""
    gap = last.value - first.value
    low = gap - math.hypot(last.value - last.low, first.high - first.value)
    high = gap + math.hypot(last.high - last.value, first.value - first.low)
    return gap, low, high


def _joint(rates: Any) -> tuple[int, int]:
    return sum(one.acceptance.hits for one in rates), sum(one.acceptance.trials for one in rates)


def _mistakes(report: AuditReport) -> tuple[Figure, Figure]:
    unit = "of 100 decisions"
    log = report.logs.groups
    if log is None or report.groups is None:
        none = unknown(unit, "decisions were not logged")
        return none, none
    counts = log.counts.sum(axis=(0, 2))
    seen = [t for t in range(len(counts)) if counts[t, :2].sum()]
    if not seen or not counts[:, :2, :UNKNOWN].sum():
        none = unknown(unit, "no decided person's outcome is known")
        return none, none
    first, last = (_mistaken(counts[t], report) for t in (seen[0], seen[-1]))
    if seen[0] == seen[-1] or not (first.known and last.known):
        return last, unknown("points", "two deployments with outcomes are needed")
    if first.bounds or last.bounds:
        ends = last.low - first.high, last.high - first.low
        return last, Figure(math.nan, *ends, "points", last.why, bounds=True)
    return last, Figure(*_difference(first, last), "points")


def _mistaken(counts: np.ndarray, report: AuditReport) -> Figure:
    """Mistakes in counts [3, 3]; bounds if the decision determined whose outcome is known."""
    unit = "of 100 decisions"
    wrong = int(counts[_ACCEPTED, NOT_QUALIFIED] + counts[_REJECTED, QUALIFIED])
    known = int(counts[:2, :UNKNOWN].sum())
    decided = int(counts[:2].sum())
    if report.groups is not None and report.groups.censoring.censored:
        missing = int(counts[:2, UNKNOWN].sum())
        # Sampling error on top of the bounds: half of the level at each end.
        z = float(stats.norm.isf(report.level / 2))
        ends = [share / decided for share in (wrong, wrong + missing)] if decided else [math.nan] * 2
        wide = [z * math.sqrt(p * (1 - p) / decided) if decided else math.nan for p in ends]
        why = "outcomes of the rejected are unknown; these are the smallest and largest possible values"
        low, high = max(ends[0] - wide[0], 0.0), min(ends[1] + wide[1], 1.0)
        return Figure(math.nan, 100 * low, 100 * high, unit, why, bounds=True)
    if not known:
        return unknown(unit, "no decided person's outcome is known")
    rate = wilson(wrong, known, 1 - report.level)
    return Figure(100 * rate.value, 100 * rate.low, 100 * rate.high, unit)


def _money(mistakes: Figure, cost: float | None) -> Figure:
    unit = "per 1,000 decisions"
    if cost is None:
        return unknown(unit, "the cost of a mistake was not given: pass --cost")
    if not mistakes.known:
        return unknown(unit, mistakes.why)
    value, low, high = (10 * cost * number for number in (mistakes.value, mistakes.low, mistakes.high))
    return Figure(value, low, high, unit, mistakes.why, mistakes.bounds)


def _excess(report: AuditReport) -> Figure:
    share = report.prospect.relative_cost
    if math.isnan(share):
        return unknown("of the least loss", "where retraining leads, or the best model, is unknown")
    return Figure(share, share, share, "of the least loss", "it rests on the fitted response; no interval is computed")

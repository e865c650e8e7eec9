"""`audit_logs`: everything that a folder of logs shows."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from performative._base.arguments import spelt
from performative._base.checks import nearest
from performative.audit import outliers
from performative.audit.advice import advise
from performative.audit.audit_report import AuditReport
from performative.audit.briefing import brief_of
from performative.audit.causes.logs import cause_in_logs
from performative.audit.client_report import ClientReport, report_clients
from performative.audit.drift import DRIFTS
from performative.audit.findings import findings_of
from performative.audit.group_logs import groups_of_logs
from performative.audit.merging import merge_summaries
from performative.audit.page import interactive_page
from performative.audit.prospect import Prospect, look_ahead
from performative.audit.reading import Logs, logs_of, read_logs
from performative.audit.schema import LogError
from performative.audit.summaries import Summaries
from performative.audit.travel import read_summaries
from performative.report.writing import make

make.register(AuditReport, interactive_page)  # so that `pf.report.write` accepts one


@spelt
def audit_logs(
    folder: Any, *, map: str | Path | None = None, groups: str | None = None, drift: str = "smooth", seed: int = 0,
    tolerance: float = 0.01, level: float = 0.05, trust: bool = False, cost: float | None = None,
    cause: bool = False,
) -> AuditReport:  # fmt: skip
    """Audit logs of past deployments; `performative.audit.schema` describes their format.

    Args:
        folder: a folder, a .parquet, .csv, .duckdb or .sqlite file, the URL of a database, an Ibis table, or what
            `open_source` returned
        map: path of audit.toml if it is not next to the data
        trust: whether models may be unpickled, which runs the code in their files
        groups: column of the protected group (default: the one named "group", if there is one)
        drift: what may have moved the data besides the model: "none", "linear", "walk" or "smooth", see `effect_test`
        seed: determines which rows are kept, and the draws behind the intervals
        tolerance: settled means |theta - stable| <= tolerance |stable|
        level: of the tests; intervals are at 1 - level
        cause: whether to estimate what decisions do to outcomes, see `causes.cause_in_logs`; needs rows, not just sums
        cost: of a mistake (wrongly accepting or rejecting a person), in money

    Tests use Holm's correction over clients. The outlook and the advice assume a linear response that stays as it is.
    """
    _check(drift, level, tolerance, cost)
    logs = read_logs(folder, map=map, groups=groups, seed=seed, trust=trust)
    report = report_on(logs, drift, seed, tolerance, level, cost)
    if not cause:
        return report
    found = cause_in_logs(folder, map=map, groups=groups, trust=trust, level=1 - level, seed=seed)
    return dataclasses.replace(report, cause=found)


def audit_summaries(
    parts: Sequence[Summaries | str | Path], *, drift: str = "smooth", seed: int = 0, tolerance: float = 0.01,
    level: float = 0.05, cost: float | None = None,
) -> AuditReport:  # fmt: skip
    """The same from sums alone, of one or several separate sources: results of `summarize`, or files of them.

    Tests, responses and the outlook of the squared loss are those of all rows together. What needs rows is omitted:
    Wasserstein distances, the outlook of other losses, the burden.
    """
    _check(drift, level, tolerance, cost)
    merged = merge_summaries([part if isinstance(part, Summaries) else read_summaries(part) for part in parts])
    return report_on(logs_of(merged, f"{len(parts)} merged"), drift, seed, tolerance, level, cost)


def _check(drift: str, level: float, tolerance: float, cost: float | None) -> None:
    if drift not in DRIFTS:
        raise ValueError(
            f"audit: drift must be one of {', '.join(map(repr, DRIFTS))}; got {drift!r}.{nearest(drift, DRIFTS)}"
        )
    for name, value in (("level", level), ("tolerance", tolerance)):
        if not 0 < value < 1:
            raise ValueError(f"audit: {name} must lie between 0 and 1; got {value!r}.")
    if cost is not None and not (math.isfinite(cost) and cost >= 0):
        raise ValueError(f"audit: cost must be a number >= 0, the cost of a mistake; got {cost!r}.")


def report_on(
    logs: Logs, drift: str, seed: int, tolerance: float, level: float, cost: float | None = None
) -> AuditReport:
    """The report on logs that have been read; see `audit_logs`."""
    clients, pooled = report_clients(
        logs.clients,
        logs.weights,
        logs.label is not None and not logs.noise,
        drift,
        level,
        seed,
        logs.outcomes,
        logs.blocked,
    )
    if not clients:
        raise LogError("at every client all columns are constant within deployments: nothing to test.", logs.folder)
    tested = [one for one in clients if one.effect.identified]
    p_value = _overall([one.p_value for one in tested], None if pooled is None else pooled.effect.p_value)
    p_any_drift = _overall(
        [one.effect.p_any_drift for one in tested], None if pooled is None else pooled.effect.p_any_drift
    )
    why = untested(logs, clients)
    effect = None if not tested else True if p_value <= level else None if why else False
    if effect:
        prospect = look_ahead(logs, clients, pooled, drift, tolerance, level, seed)
    elif effect is None:
        prospect = Prospect(None, (f"it is unknown whether the data react{': ' + why if why else ''}.",))
    else:
        prospect = Prospect(None, ("no effect was found, so as far as these logs show, this is ordinary retraining.",))
    # Without decisions there is nothing to report about acceptance.
    decided = logs.groups is not None and logs.decides
    report = AuditReport(
        logs, clients, drift, level, tolerance, seed, pooled, p_value, p_any_drift, effect, why, prospect,
        advise(clients, effect, prospect, why, logs.blocked, p_any_drift > level),
        groups_of_logs(logs, level=1 - level, reaction=effect) if decided else None,
        () if effect else outliers.drowned(clients),
    )  # fmt: skip
    report = dataclasses.replace(report, brief=brief_of(report, cost))
    return dataclasses.replace(report, findings=findings_of(report))


def _overall(clients: list[float], pooled: float | None) -> float:
    """The p-value for no effect anywhere, Bonferroni-corrected over clients; the pooled test has half of the level."""
    p = min(1.0, len(clients) * min(clients)) if clients else 1.0
    return p if pooled is None else min(1.0, 2 * min(p, pooled))


# How the model's influence on who has a label shows: through acceptance, or a pattern that changes with the model.
_DECIDED = {True: "the model decided whose label is known", False: "whose label is known changes between deployments"}


def untested(logs: Logs, clients: tuple[ClientReport, ...]) -> str:
    """Why the label, or some client's label, could not be tested; "" if it was, or if there is none to test."""
    found = logs.selection
    if logs.blocked or found is None or found.method == "left out" or logs.label is not None:
        return ""
    if found.method == "withheld":
        return _DECIDED[found.by == "acceptance"] if found.kind == "model" else found.why
    without = [one.name for one in clients if one.effect.identified and "label" not in one.tested]
    return f"there are too few labels at {', '.join(without[:5])}" if without else ""

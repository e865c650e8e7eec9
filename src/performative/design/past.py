"""Conditions of exploration from logs: noise between rows and between deployments."""

from pathlib import Path

import numpy as np

from performative.audit.audit_report import AuditReport
from performative.audit.report import audit_logs
from performative.audit.schema import LogError
from performative.design.conditions import Conditions


def conditions_of_logs(logs: str | Path | AuditReport) -> Conditions:
    """Conditions from a folder of logs (`performative.audit.schema`), or from the audit of one.

    Spread and rows are those of the logged deployments; over-dispersion is that of the audit's test: how much the means
    of deployments vary beyond rows, trend and response. The deployed loss is the audit's: the curvature of the
    performative risk if an outlook was computed; that of the squared loss without reaction if that is the loss and no
    reaction was found; otherwise it is unknown, and a design has no cost.
    """
    report = logs if isinstance(logs, AuditReport) else audit_logs(logs)
    columns = [set(one.log.columns) for one in report.clients]
    names = tuple(name for name in report.clients[0].log.columns if all(name in some for some in columns))
    if not names:
        raise LogError("no column varies at every client, so no common noise is known.", report.logs.folder)
    spread, extra, rows = [], [], []
    for one in report.clients:
        take = [one.log.columns.index(name) for name in names]
        spread.append(one.log.spread[take])
        place = {name: k for k, name in enumerate(one.tested)}
        found = one.effect.over_dispersion
        extra.append([max(1.0, float(found[place[name]])) if name in place else 1.0 for name in names])
        rows.append(np.mean(one.log.count))
    last = max(report.clients, key=lambda one: one.log.time[-1]).log
    return Conditions(
        np.array(spread), np.array(rows), last.theta[-1], np.array(extra), _curvature(report, last.theta.shape[1]),
        np.array([one.weight for one in report.clients]), names, last.parameters,
        tuple(one.name for one in report.clients),
    )  # fmt: skip


def _curvature(report: AuditReport, d: int) -> np.ndarray | None:
    """[N, d] of the performative risk over all clients together, the same for each."""
    hessian = report.prospect.performative_hessian
    if hessian is None and report.effect is False and report.logs.loss == "squared":
        hessian = np.eye(d)
    return None if hessian is None else np.tile(np.diag(hessian), (len(report.clients), 1))

"""Deployment breaks with controls: clients whose model changed, compared with clients whose model did not."""

from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from performative.audit.causes.estimate import Estimate, Refused, two_groups, with_interval
from performative.audit.causes.table import Table
from performative.findings import Finding

_CLIENTS = 3
_BEFORE = 3
_PRETEST = 0.05


class Panel(NamedTuple):
    """mean: [G, T] mean outcomes by client and period; change: [G] first period under another model (T: never)."""

    mean: np.ndarray
    change: np.ndarray
    until: np.ndarray


def breaks(table: Table, level: float = 0.95) -> Estimate:
    """Difference in differences, with one number per client.

        d_i = mean of y_i from its change on - mean of y_i before          clients that changed, at g_i
        e_j = sum_g (share changed at g) (the same difference of client j at g)      clients that never did
        tau = mean_i d_i - mean_j e_j,      Welch's interval over clients

    Each client is one observation, however its rows correlate with each other and over time; for normally distributed
    clients the interval is nearly exact even with few of them (Bertrand, Duflo and Mullainathan 2004; Donald and Lang
    2007). Clients that change later never serve as controls, so staggered changes and heterogeneous effects do no
    harm. A second change ends a client's post-change window.

    Assumes parallel trends. Periods before the change are compared to check this, and the design is refused if they
    differ; anything else that starts exactly at the change cannot be distinguished from it.
    """
    panel = _panel(table)
    T = panel.mean.shape[1]
    changed = panel.change < T
    if not changed.any():
        raise Refused("no-break")
    if (~changed).sum() < _CLIENTS:
        raise Refused("no-controls", "warning", controls=int((~changed).sum()), least=_CLIENTS)
    first = panel.change[changed].min()
    if first < _BEFORE:
        raise Refused("short-before", periods=int(first), least=_BEFORE)
    d, e = _contrasts(panel, changed, _difference)
    estimate, error, df = two_groups(d, e)
    trend = _pretrends(panel, changed)
    if trend["p_value"] < _PRETEST:
        raise Refused("pretrends", "warning", p_value=trend["p_value"])
    diagnostics: dict[str, Any] = {
        "changed": int(changed.sum()), "controls": int((~changed).sum()), "periods": T, "df": df,
        "pretrend_p": trend["p_value"], "trend_not_excluded": trend["reach"],
        "event_study": _event_study(panel, changed),
    }  # fmt: skip
    cautions: tuple[Finding, ...] = ()
    half = float(stats.t.ppf((1 + level) / 2, df)) * error
    if trend["reach"] > half:
        cautions = (Finding("caution.weak-pretrends", "caution", {"bias": trend["reach"], "half": half}),)
    return with_interval(estimate, error, df, level, table.rows, "changed-clients", diagnostics, cautions)


def _panel(table: Table) -> Panel:
    """Means by client and period, and when each client's model changed."""
    if table.client is None or table.time is None or table.deployment is None:
        names = ("client", "time", "deployment")
        raise Refused("no-panel", missing=[name for name in names if getattr(table, name) is None])
    known = np.isfinite(table.outcome)
    G, T = int(table.client.max()) + 1, int(table.time.max()) + 1
    cell = table.client * T + table.time
    count = np.bincount(cell[known], minlength=G * T).reshape(G, T)
    if np.any(count == 0):
        raise Refused("empty-cells", cells=int((count == 0).sum()), all=G * T)
    total = np.bincount(cell[known], table.outcome[known], minlength=G * T).reshape(G, T)
    low, high = np.full(G * T, np.inf), np.full(G * T, -np.inf)
    np.minimum.at(low, cell, table.deployment)
    np.maximum.at(high, cell, table.deployment)
    if np.any(mixed := low != high):
        raise Refused("mixed-models", cells=int(mixed.sum()), all=G * T)
    model = low.reshape(G, T)
    change = np.full(G, T)
    until = np.full(G, T)
    for i in range(G):
        at = np.flatnonzero(np.diff(model[i])) + 1
        if len(at):
            change[i] = at[0]
            until[i] = at[1] if len(at) > 1 else T
    return Panel(total / count, change, until)


def _contrasts(panel: Panel, changed: np.ndarray, contrast: Any) -> tuple[np.ndarray, np.ndarray]:
    """The contrast of each client that changed, and of each control at the same times, with the same shares.

    Args:
        contrast: (weights of periods, first period after, end of the window) -> None, filling in the weights
    """
    T = panel.mean.shape[1]
    weights = np.zeros((int(changed.sum()), T))
    for row, change, until in zip(weights, panel.change[changed], panel.until[changed], strict=True):
        contrast(row, int(change), int(until))
    return (weights * panel.mean[changed]).sum(axis=1), panel.mean[~changed] @ weights.mean(axis=0)


def _difference(w: np.ndarray, change: int, until: int) -> None:
    w[change:until], w[:change] = 1 / (until - change), -1 / change


def _slope(w: np.ndarray, change: int, until: int) -> None:
    """The slope before the change, times the distance between the midpoints before and after: the bias it causes."""
    t = np.arange(change) - (change - 1) / 2
    w[:change] = t / (t @ t) * until / 2


def _step(back: int) -> Any:
    """The period `back` periods before the change, against the other periods before."""

    def contrast(w: np.ndarray, change: int, until: int) -> None:
        w[:change] = -1 / (change - 1)
        w[change - back] = 1.0

    return contrast


def _since(k: int) -> Any:
    """k periods after the change (before, if negative), against all periods before."""

    def contrast(w: np.ndarray, change: int, until: int) -> None:
        w[:change] = -1 / change
        w[change + k] += 1.0

    return contrast


def _pretrends(panel: Panel, changed: np.ndarray) -> dict[str, float]:
    """Test for parallel trends before the change: slopes, and each earlier period against the other earlier periods.

    The p-value is Bonferroni's, with half of the level for the slope. `reach` is the bias of tau under the largest
    difference of slopes that the 95% interval allows.
    """
    slope = two_groups(*_contrasts(panel, changed, _slope))
    least = int(panel.change[changed].min())
    tests = [slope, *(two_groups(*_contrasts(panel, changed, _step(back))) for back in range(1, least + 1))]
    steep, *p = (2 * stats.t.sf(abs(d) / error, df) if error > 0 else float(d == 0) for d, error, df in tests)
    reach = abs(slope[0]) + stats.t.ppf(0.975, slope[2]) * slope[1]
    return {"p_value": float(min(1.0, 2 * steep, 2 * len(p) * min(p))), "reach": float(reach)}


def _event_study(panel: Panel, changed: np.ndarray) -> list[dict[str, Any]]:
    """By periods since the change (negative: before): the difference from controls, relative to before the change."""
    first = int(panel.change[changed].min())
    last = int((panel.until - panel.change)[changed].min())
    lines = []
    for k in range(-first, last):
        d, error, df = two_groups(*_contrasts(panel, changed, _since(k)))
        half = float(stats.t.ppf(0.975, df)) * error
        lines.append({"since": k, "estimate": d, "lower": d - half, "upper": d + half})
    return lines

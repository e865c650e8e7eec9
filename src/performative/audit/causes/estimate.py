"""The result of one design: an estimate with its interval, or the reason why there is none."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats

from performative.findings import Finding, Severity


@dataclass(frozen=True)
class Estimate:
    """One design's result.

    Attributes:
        estimate, standard_error, lower, upper: of the effect, in units of the outcome, at the requested level
        p_value: for no effect
        rows: how many were used
        on: on whom or where the effect is measured, a key of `words.ON`
        diagnostics: what was checked, and the numbers behind the estimate
        cautions: findings that qualify it
    """

    estimate: float
    standard_error: float
    lower: float
    upper: float
    p_value: float
    rows: int
    on: str
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    cautions: tuple[Finding, ...] = ()


class Refused(Exception):
    """Raised if these rows do not identify the effect by this design; the finding says why."""

    def __init__(self, reason: str, severity: Severity = "info", **facts: Any):
        super().__init__(reason)
        self.finding = Finding(f"refused.{reason}", severity, facts)


def with_interval(
    estimate: float, error: float, df: float, level: float, rows: int, on: str, diagnostics: Mapping[str, Any],
    cautions: tuple[Finding, ...] = (),
) -> Estimate:  # fmt: skip
    """Student's t interval, normal for df = inf."""
    half = float(stats.t.ppf((1 + level) / 2, df)) * error
    p = float(2 * stats.t.sf(abs(estimate) / error, df)) if error > 0 else float(estimate == 0)
    return Estimate(
        float(estimate),
        float(error),
        float(estimate - half),
        float(estimate + half),
        p,
        rows,
        on,
        diagnostics,
        cautions,
    )


def two_groups(treated: np.ndarray, control: np.ndarray) -> tuple[float, float, float]:
    """Difference of means of independent units, its standard error, and degrees of freedom.

        d = m_1 - m_0,      se^2 = s_1^2 / n_1 + s_0^2 / n_0,      df by Satterthwaite (Welch 1947)

    A group of one unit has no variance estimate: the other group's is used for both, with df = its size - 1 (Donald
    and Lang 2007).
    """
    n1, n0 = len(treated), len(control)
    d = float(treated.mean() - control.mean())
    if min(n1, n0) == 1:
        many = treated if n1 > 1 else control
        return d, float(np.std(many, ddof=1) * np.sqrt(1 / n1 + 1 / n0)), float(len(many) - 1)
    a, b = treated.var(ddof=1) / n1, control.var(ddof=1) / n0
    if a + b == 0:
        return d, 0.0, float(n1 + n0 - 2)
    return d, float(np.sqrt(a + b)), float((a + b) ** 2 / (a**2 / (n1 - 1) + b**2 / (n0 - 1)))


def known_outcomes(outcome: np.ndarray, decision: np.ndarray | None) -> np.ndarray:
    """[n] the rows whose outcome is known; refused if missingness depends on the decision.

    Up to 1% may be missing for any reason; up to 10% if outcomes are missing equally often under both decisions.
    """
    known = np.isfinite(outcome)
    missing = float(1 - known.mean())
    if missing <= 0.01:
        return known
    if decision is not None and 0 < decision.sum() < len(decision):
        table = [[np.sum(known & (decision == d)), np.sum(~known & (decision == d))] for d in (1, 0)]
        shares = [row[1] / max(sum(row), 1) for row in table]
        if stats.chi2_contingency(table, correction=False).pvalue < 0.05:
            raise Refused("missing-by-decision", "warning", treated=float(shares[0]), control=float(shares[1]))
    if missing > 0.1:
        raise Refused("missing", "warning", share=missing)
    return known

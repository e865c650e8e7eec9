"""A randomized share: rows whose decision was randomized."""

from typing import Any

import numpy as np
from scipy import stats

from performative.audit.causes.estimate import Estimate, Refused, known_outcomes, two_groups, with_interval
from performative.audit.causes.table import Table

# Level of the checks of randomization: one valid log in a thousand is refused.
_CHECK = 0.001
# Rows (or clients, if whole clients were randomized) that each decision needs.
_ROWS, _CLIENTS = 20, 3
# A stratum is adjusted for if it has this many rows of each decision.
_STRATUM = 10


def randomized(table: Table, level: float = 0.95) -> Estimate:
    """Difference in means between randomized decisions, adjusted for pre-decision features.

        y = a + tau D + b.(x - mean x) + c.(x - mean x) D + e,      HC2 errors          (Lin 2013)

    x contains the features and, if the share of D = 1 may differ between deployments or clients, their indicators: the
    estimate then compares within each. Without x it is the difference in means with Neyman's variance. If all rows of
    each client have the same decision, whole clients were randomized, and their means are compared (Welch).
    """
    table = _drawn_rows(table)
    assert table.decision is not None  # handled by _drawn_rows
    table = table.where(known_outcomes(table.outcome, table.decision))
    D = table.decision
    assert D is not None
    if table.client is not None and _by_client(table.client, D):
        return _of_clients(table, level)
    if min(D.sum(), len(D) - D.sum()) < _ROWS:
        raise Refused("few-drawn", least=_ROWS, treated=int(D.sum()), control=int(len(D) - D.sum()))
    strata, kept = _strata(table)
    if not kept.all():
        table, strata, D = table.where(kept), strata[kept], D[kept]
    dummies = (strata[:, None] == np.unique(strata)[1:]).astype(np.float64)
    features = np.empty((len(D), 0)) if table.features is None else table.features
    checks = _checks(features, dummies, D, table)
    X = np.column_stack([features, dummies])
    X = X[:, np.ptp(X, axis=0) > 0] if X.shape[1] else X
    estimate, error, df = lin_regression(table.outcome, D, X)
    diagnostics = {
        "treated": int(D.sum()), "control": int(len(D) - D.sum()), "strata": len(np.unique(strata)),
        "unadjusted": two_groups(table.outcome[D == 1], table.outcome[D == 0])[0], **checks,
    }  # fmt: skip
    return with_interval(estimate, error, df, level, table.rows, "drawn", diagnostics)


def lin_regression(y: np.ndarray, D: np.ndarray, X: np.ndarray) -> tuple[float, float, float]:
    """tau, its standard error and n - p, from the regression in `randomized`.

    c' Cov(x) c / n is added to the HC2 variance: the people themselves are a sample.
    """
    centered = X - X.mean(axis=0)
    scale = centered.std(axis=0)
    centered = centered / np.where(scale > 0, scale, 1.0)
    Z = np.column_stack([np.ones_like(D), D, centered, centered * D[:, None]])
    # An orthonormal basis of the columns: collinear features cost nothing.
    left, values, right = np.linalg.svd(Z, full_matrices=False)
    keep = values > values[0] * 1e-10
    left = left[:, keep]
    inverse = right[keep].T / values[keep]
    fitted = left.T @ y
    residual = y - left @ fitted
    leverage = np.minimum((left**2).sum(axis=1), 1 - 1e-8)
    loading = left @ inverse[1]
    differs = centered @ (inverse @ fitted)[2 + X.shape[1] :]
    variance = np.sum(loading**2 * residual**2 / (1 - leverage)) + np.mean(differs**2) / len(y)
    return float(loading @ y), float(np.sqrt(variance)), float(len(y) - keep.sum())


def _drawn_rows(table: Table) -> Table:
    """The rows whose decision was randomized, by a column that says so or by a constant logged propensity."""
    if table.decision is None:
        raise Refused("no-decision")
    if table.randomized is not None:
        if not table.randomized.any():
            raise Refused("nothing-drawn")
        return table.where(table.randomized)
    e = table.propensity
    if e is not None and np.ptp(e) < 1e-9 and 0.001 <= e[0] <= 0.999:
        return table
    raise Refused("not-randomized", logged=e is not None)


def _by_client(client: np.ndarray, D: np.ndarray) -> bool:
    """Whether whole clients were randomized: each client has one decision in all of its rows."""
    count = np.bincount(client)
    share = np.bincount(client, D)[count > 0] / count[count > 0]
    # Clients with a single row trivially have one decision.
    return bool(np.all((share == 0) | (share == 1)) and count[count > 0].mean() > 1.5)


def _of_clients(table: Table, level: float) -> Estimate:
    assert table.client is not None and table.decision is not None
    count = np.bincount(table.client)
    there = count > 0
    means = np.bincount(table.client, table.outcome)[there] / count[there]
    treated = np.bincount(table.client, table.decision)[there] > 0
    if min(treated.sum(), (~treated).sum()) < _CLIENTS:
        raise Refused(
            "few-drawn-clients", least=_CLIENTS, treated=int(treated.sum()), control=int((~treated).sum())
        )  # fmt: skip
    estimate, error, df = two_groups(means[treated], means[~treated])
    diagnostics = {"treated": int(treated.sum()), "control": int((~treated).sum()), "df": df}
    return with_interval(estimate, error, df, level, table.rows, "drawn-clients", diagnostics)


def _strata(table: Table) -> tuple[np.ndarray, np.ndarray]:
    """[n] the stratum of each row, and [n] which rows are usable: strata in which both decisions occur.

    Strata are pairs of deployment and client: the propensity may differ between them, and comparing across strata
    would confound it with drift. Strata too small to compare within are pooled if a test does not reject that the
    share of D = 1 is the same in all.
    """
    assert table.decision is not None
    D, one, every = table.decision, np.zeros(table.rows, int), np.ones(table.rows, bool)
    parts = [part for part in (table.deployment, table.client) if part is not None]
    if not parts:
        return one, every
    _, strata = np.unique(np.column_stack(parts), axis=0, return_inverse=True)
    strata = strata.reshape(-1)
    count, ones = np.bincount(strata), np.bincount(strata, D)
    kept = ((ones >= _STRATUM) & (count - ones >= _STRATUM))[strata]
    if kept.all():
        return strata, every
    expected = count * D.mean()
    spread = np.sum((ones - expected) ** 2 / np.maximum(expected * (1 - D.mean()), 1e-12))
    if stats.chi2.sf(spread, len(count) - 1) > 0.2:
        return one, every
    if kept.mean() < 0.5:
        raise Refused("thin-strata", least=_STRATUM, share=float(kept.mean()))
    return strata, kept


def _checks(features: np.ndarray, dummies: np.ndarray, D: np.ndarray, table: Table) -> dict[str, Any]:
    """Check that decisions were randomized as logged: features must not predict them, and their share must match.

    (d - p)' X V^-1 X' (d - p) ~ chi2(k)          features in addition to the strata
    """
    found: dict[str, Any] = {"balance_p": None, "share_p": None}
    base = np.column_stack([np.ones_like(D), dummies])
    if features.shape[1]:
        left, rest = _residuals(base, D), _residuals(base, features)
        score = rest * left[:, None]
        V = np.linalg.pinv(score.T @ score)
        total = score.sum(axis=0)
        statistic = float(total @ V @ total)
        found["balance_p"] = float(stats.chi2.sf(statistic, np.linalg.matrix_rank(V)))
        if found["balance_p"] < _CHECK:
            raise Refused("unbalanced", "warning", p_value=found["balance_p"])
    e = table.propensity
    if e is not None and np.all((e > 0) & (e < 1)):
        z = (D - e).sum() / np.sqrt((e * (1 - e)).sum())
        found["share_p"] = float(2 * stats.norm.sf(abs(z)))
        if found["share_p"] < _CHECK:
            raise Refused(
                "share-mismatch", "warning", p_value=found["share_p"], share=float(D.mean()), said=float(e.mean())
            )
    return found


def _residuals(base: np.ndarray, columns: np.ndarray) -> np.ndarray:
    return columns - base @ np.linalg.lstsq(base, columns, rcond=None)[0]

"""Overlapping policies: similar people received both decisions."""

from typing import Any

import numpy as np
from scipy import stats

from performative.audit.causes.estimate import Estimate, Refused, known_outcomes, with_interval
from performative.audit.causes.table import Table
from performative.findings import Finding

# Propensities beyond this are not overlap: one row would represent a hundred.
_LEAST = 0.01
# Minimum number of rows per decision, and minimum share of rows with overlap, for an estimate.
_ROWS, _SHARE = 50, 0.1
# The largest share of rows without overlap if propensities are estimated: none may be dropped then.
_OUTSIDE = 0.02
_CHECK = 0.001
# Weighted differences of a feature between decisions, in standard deviations, above this are not small.
_IMBALANCE = 0.1
# Squares and products are added for up to this many features.
_SQUARES = 12


def overlap(
    table: Table, level: float = 0.95, outcome_model: Any = None, propensity_model: Any = None, folds: int = 5,
    seed: int = 0,
) -> Estimate:  # fmt: skip
    """Doubly robust (AIPW) mean difference with cross-fitted nuisances.

        psi_i = g_1(x_i) - g_0(x_i) + D_i (y_i - g_1(x_i)) / e_i - (1 - D_i) (y_i - g_0(x_i)) / (1 - e_i)
        tau = mean psi,      se = sd(psi) / sqrt(n)

    e is the logged propensity if there is one: then tau only requires the log to be correct, and hidden confounders
    do no harm. Otherwise e is estimated from features and score, which must contain all common causes of decision and
    outcome: the data cannot show this, and the result says so. g_d is fitted on the other folds
    (Robins, Rotnitzky and Zhao 1994; Chernozhukov et al. 2018).

    Args:
        outcome_model, propensity_model: scikit-learn estimators; by default ridge and logistic regression on the
            features, their squares and their products (for up to 12 features; no products beyond that)
    """
    if table.decision is None:
        raise Refused("no-decision")
    table = table.where(known_outcomes(table.outcome, table.decision))
    D, y = table.decision, table.outcome
    assert D is not None
    if D.min() == D.max():
        raise Refused("one-decision", value=int(D[0]))
    X = _known_before(table)
    logged = table.propensity is not None
    if logged:
        assert table.propensity is not None
        inside = (table.propensity >= _LEAST) & (table.propensity <= 1 - _LEAST)
        share = float(inside.mean())
        if share < _SHARE:
            raise Refused("no-overlap-logged", "warning", share=share, least=_LEAST)
        D, y, X, e = D[inside], y[inside], X[inside], table.propensity[inside]
        _check_logged(D, e, X)
    elif X.shape[1] == 0:
        raise Refused("nothing-known", fitted=False)
    elif _step(table):
        raise Refused("no-overlap-step", "warning", threshold=table.threshold)
    elif (alone := _of_one_decision(table)) > _OUTSIDE:
        raise Refused("no-overlap", "warning", share=alone, least=_LEAST)
    if min(D.sum(), len(D) - D.sum()) < _ROWS:
        raise Refused("few-overlap", least=_ROWS, treated=int(D.sum()), control=int(len(D) - D.sum()))
    split = _folds(D, folds, seed)
    if not logged:
        e = _cross_fitted_chances(X, D, split, propensity_model)
        outside = float(np.mean((e < _LEAST) | (e > 1 - _LEAST)))
        if outside > _OUTSIDE:
            raise Refused("no-overlap", "warning", share=outside, least=_LEAST)
        e, share = np.clip(e, _LEAST, 1 - _LEAST), 1.0
        _check_balance(D, e, X, table)
    g1, g0 = _cross_fitted_outcomes(X, D, y, split, outcome_model)
    psi = g1 - g0 + D * (y - g1) / e - (1 - D) * (y - g0) / (1 - e)
    estimate, error = float(psi.mean()), float(psi.std(ddof=1) / np.sqrt(len(psi)))
    w = np.where(D == 1, 1 / e, 1 / (1 - e))
    effective = [float(one.sum() ** 2 / (one**2).sum()) for one in (w[D == 1], w[D == 0])]
    residual = np.where(D == 1, y - g1, y - g0)
    diagnostics = {
        "propensity": "logged" if logged else "estimated", "least_propensity": float(e.min()),
        "largest_propensity": float(e.max()), "share_with_overlap": share, "effective_treated": effective[0],
        "effective_control": effective[1], "robustness": None if logged else _robustness(estimate, residual, w),
    }  # fmt: skip
    if min(effective) < _ROWS / 2:
        raise Refused("thin-overlap", "warning", effective=min(effective), least=_ROWS // 2)
    cautions = (
        () if logged else (Finding("caution.hidden-causes", "caution", {"robustness": diagnostics["robustness"]}),)
    )
    on = ("overlap" if share < 1 else "all") if logged else "all"
    return with_interval(estimate, error, np.inf, level, len(psi), on, diagnostics, cautions)


def _known_before(table: Table) -> np.ndarray:
    """[n, k] features, score, and indicators of deployments and clients, as drift may move decisions and outcomes."""
    parts = [part for part in (table.features, table.score) if part is not None]
    for codes in (table.deployment, table.client):
        if codes is not None and 1 < codes.max() + 1 <= 50:
            parts.append((codes[:, None] == np.arange(1, codes.max() + 1)).astype(np.float64))
    return np.column_stack(parts) if parts else np.empty((table.rows, 0))


def _step(table: Table) -> bool:
    """Whether the decision is a step in the score: nobody on either side received the other decision."""
    if table.score is None or table.decision is None:
        return False
    one, zero = table.score[table.decision == 1], table.score[table.decision == 0]
    return bool(one.min() > zero.max() or zero.min() > one.max())


def _of_one_decision(table: Table) -> float:
    """The share of rows at clients, or under deployments, with a single decision; the larger of the two."""
    shares = [0.0]
    for codes in (table.client, table.deployment):
        if codes is not None and table.decision is not None:
            ones = np.bincount(codes, table.decision) / np.maximum(np.bincount(codes), 1)
            shares.append(float(np.mean((ones[codes] == 0) | (ones[codes] == 1))))
    return max(shares)


def _folds(D: np.ndarray, folds: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    from sklearn.model_selection import StratifiedKFold

    return list(StratifiedKFold(folds, shuffle=True, random_state=seed).split(D, D))


def _expand(X: np.ndarray) -> np.ndarray:
    """Standardized columns, with squares and products of non-indicators if these are few."""
    varies = X[:, np.ptp(X, axis=0) > 0]
    if not varies.shape[1]:
        return varies
    Z = (varies - varies.mean(axis=0)) / varies.std(axis=0)
    many = [k for k in range(Z.shape[1]) if len(np.unique(Z[:, k])) > 2]
    if len(many) <= _SQUARES:
        products = [Z[:, a] * Z[:, b] for at, a in enumerate(many) for b in many[at:]]
        Z = np.column_stack([Z, *((p - p.mean()) / max(p.std(), 1e-300) for p in products)])
    return Z


def _cross_fitted_chances(X: np.ndarray, D: np.ndarray, split: Any, model: Any) -> np.ndarray:
    from sklearn.base import clone
    from sklearn.linear_model import LogisticRegression

    if model is None:
        model, X = LogisticRegression(C=10.0, max_iter=1000), _expand(X)
    e = np.empty(len(D))
    for train, test in split:
        e[test] = clone(model).fit(X[train], D[train]).predict_proba(X[test])[:, 1]
    return e


def _cross_fitted_outcomes(
    X: np.ndarray, D: np.ndarray, y: np.ndarray, split: Any, model: Any
) -> tuple[np.ndarray, np.ndarray]:
    """g_1 and g_0; means if there are no features."""
    from sklearn.base import clone
    from sklearn.dummy import DummyRegressor
    from sklearn.linear_model import RidgeCV

    if model is None:
        X = _expand(X)
        model = RidgeCV(np.geomspace(1e-2, 1e3, 6))
    if X.shape[1] == 0:
        model, X = DummyRegressor(), np.zeros((len(D), 1))
    g = np.empty((2, len(D)))
    for train, test in split:
        for d in (0, 1):
            of = train[D[train] == d]
            g[d, test] = clone(model).fit(X[of], y[of]).predict(X[test])
    return g[1], g[0]


def _check_logged(D: np.ndarray, e: np.ndarray, X: np.ndarray) -> None:
    """Check that decisions occur as often as the logged propensities say, at all levels and for all features.

    sum_i (D_i - e_i) (1, logit e_i, x_i) ~ N(0, sum_i e_i (1 - e_i) z z')
    """
    Z = np.column_stack([np.ones_like(e), np.log(e / (1 - e)), X])
    Z = Z[:, (np.ptp(Z, axis=0) > 0) | (np.arange(Z.shape[1]) == 0)]
    Z = Z / np.maximum(np.abs(Z).max(axis=0), 1e-300)
    V = np.linalg.pinv((Z * (e * (1 - e))[:, None]).T @ Z)
    total = Z.T @ (D - e)
    p = float(stats.chi2.sf(total @ V @ total, np.linalg.matrix_rank(V)))
    if p < _CHECK:
        raise Refused("propensity-mismatch", "warning", p_value=p, share=float(D.mean()), said=float(e.mean()))


def _check_balance(D: np.ndarray, e: np.ndarray, X: np.ndarray, table: Table) -> None:
    """Check that features balance when weighted by 1/e; if not, the propensities were poorly estimated."""
    spread = X.std(axis=0)
    X = X[:, spread > 0]
    w1, w0 = D / e, (1 - D) / (1 - e)
    a, b = w1 / w1.mean(), w0 / w0.mean()
    influence = a[:, None] * (X - (a @ X) / len(D)) - b[:, None] * (X - (b @ X) / len(D))
    apart = ((a - b) @ X) / len(D) / X.std(axis=0)
    error = influence.std(axis=0) / np.sqrt(len(D)) / X.std(axis=0)
    worst = int(np.argmax(np.abs(apart)))
    if abs(apart[worst]) > _IMBALANCE and abs(apart[worst]) > 3 * error[worst]:
        names = [*table.names, *(["score"] if table.score is not None else [])]
        kept = [name for name, s in zip(names, spread, strict=False) if s > 0]
        name = kept[worst] if worst < len(kept) else "a deployment or client"
        raise Refused("unbalanced-weights", "warning", feature=name, apart=float(abs(apart[worst])))


def _robustness(estimate: float, residual: np.ndarray, w: np.ndarray) -> float:
    """r: a hidden confounder that explains this share of the residual of outcome and decision could make tau zero.

        |bias| <= S r / sqrt(1 - r),   S^2 = E[(y - g)^2] E[w^2];      S r / sqrt(1 - r) = |tau|

    Chernozhukov, Cinelli, Newey, Sharma and Syrgkanis 2022, with both shares equal.
    """
    k = estimate**2 / max(float(np.mean(residual**2) * np.mean(w**2)), 1e-300)
    return float((np.sqrt(k * k + 4 * k) - k) / 2)

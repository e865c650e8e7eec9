"""Imputation of unobserved labels: under a stated assumption, and at both extremes.

If the model decides whose label is known, an outlook from the known labels would describe the accepted alone. So every
row gets a label: as in rows of its client with the same features (missing at random given the features), all 0, or all
1. The first is an estimate; the other two show how much depends on it.
"""

import dataclasses

import numpy as np

from performative.audit.draws import Draw
from performative.audit.moments import Moments, merge
from performative.audit.summaries import Summaries

ALIKE, NONE, EVERY = "as labeled people with the same features", "all 0", "all 1"


@dataclasses.dataclass(frozen=True, eq=False)
class Filling:
    """Moments of all rows, features and label, and the kept rows with imputed labels (None if none were kept)."""

    name: str
    moments: Moments
    kept: Draw | None


def fillings(seen: Summaries, kept: Draw | None) -> tuple[Filling, ...]:
    """The estimate first, then the extremes, which exist only for 0-1 labels."""
    made = [_alike(seen, kept)]
    if seen.binary:
        count, _, squares = seen.unlabeled.by_cell()
        still = np.zeros(squares.shape[:2])
        for name, value in ((NONE, 0.0), (EVERY, 1.0)):
            constant = np.full(len(count), value)
            rows = None if kept is None else _with_labels(kept, np.full(len(kept.cell), value))
            made.append(Filling(name, _filled(seen, constant, still, np.zeros(len(count))), rows))
    return tuple(made)


def _alike(seen: Summaries, kept: Draw | None) -> Filling:
    """Labels as predicted from the features by the labeled rows of the client.

        P(y = 1 | x) = 1 / (1 + exp(-b_0 - b . x))    fitted to kept labeled rows, averaged over kept unlabeled rows

    If no rows are kept, or labels are not 0 and 1, by a linear regression, which needs only the sums.
    """
    level, slope = _regressions(seen)
    count, mean, squares = seen.unlabeled.by_cell()
    guess = level + np.einsum("cj,cj->c", slope, mean)
    cross = np.einsum("cjk,ck->cj", squares, slope)
    own = np.einsum("cj,cj->c", cross, slope)
    rows = None
    if kept is not None:
        foretold = level[kept.cell] + np.einsum("mj,mj->m", slope[kept.cell], kept.rows[:, :-1])
        if seen.binary:
            foretold = _chances(seen, kept, np.clip(foretold, 0.0, 1.0))
            for cell in np.unique(kept.cell[~kept.labeled]):
                at = np.flatnonzero((kept.cell == cell) & ~kept.labeled)
                x, p = kept.rows[at, :-1], foretold[at]
                guess[cell] = p.mean()
                cross[cell] = count[cell] * ((x - x.mean(axis=0)).T @ (p - p.mean())) / len(at)
        rows = _with_labels(kept, foretold)
    if seen.binary:
        guess = np.clip(guess, 0.0, 1.0)
        # A 0-1 label has variance p (1 - p) whatever the features predict.
        own = count * guess * (1 - guess)
    return Filling(ALIKE, _filled(seen, guess, cross, own), rows)


def _chances(seen: Summaries, kept: Draw, otherwise: np.ndarray) -> np.ndarray:
    """[m] probability of label 1 for each kept row, by one logistic regression per client."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    out, client = otherwise.copy(), kept.cell // len(seen.deployments.names)
    for i in range(len(seen.clients)):
        own = client == i
        fit = own & kept.labeled
        y = kept.rows[fit, -1]
        if len(np.unique(y)) == 2 and len(y) > 10 * kept.rows.shape[1]:
            # A penalty too small to matter, except for perfectly separable labels.
            model = make_pipeline(StandardScaler(), LogisticRegression(C=1e4, max_iter=1000))
            model.fit(kept.rows[fit, :-1], y)
            out[own] = model.predict_proba(kept.rows[own, :-1])[:, 1]
    return out


def _regressions(seen: Summaries) -> tuple[np.ndarray, np.ndarray]:
    """Level [C T] and slope [C T, k] of the label on the features among labeled rows.

        slope = (sum_t S_xx)^+ sum_t S_xy   over the deployments t of a client,   level_t = mean y_t - slope . mean x_t

    Deployments without a label take the client's mean level.
    """
    count, mean, squares = seen.labeled.by_cell()
    k, many = len(seen.columns.features), len(seen.deployments.names)
    level, slope = np.zeros(len(count)), np.zeros((len(count), k))
    for i in range(len(seen.clients)):
        own = np.arange(i * many, (i + 1) * many)
        has = own[count[own] > 0]
        if not len(has):
            continue
        total = squares[own].sum(axis=0)
        spread = np.sqrt(np.maximum(np.diag(total)[:k], 1e-300))
        scaled = total[:k, :k] / np.outer(spread, spread)
        b = np.linalg.pinv(scaled, rcond=1e-10, hermitian=True) @ (total[:k, k] / spread) / spread
        at = mean[:, k] - mean[:, :k] @ b
        slope[own], level[own] = b, np.average(at[has], weights=count[has])
        level[has] = at[has]
    return level, slope


def _filled(seen: Summaries, value: np.ndarray, cross: np.ndarray, own: np.ndarray) -> Moments:
    """All rows, with imputed labels of mean `value`, covariance sums `cross` and squares `own`, by cell."""
    count, mean, squares = seen.unlabeled.by_cell()
    use, many = np.flatnonzero(count), len(seen.deployments.names)
    q = len(seen.labeled.columns)
    whole = np.zeros((len(use), q, q))
    whole[:, : q - 1, : q - 1] = squares[use]
    whole[:, : q - 1, q - 1] = whole[:, q - 1, : q - 1] = cross[use]
    whole[:, q - 1, q - 1] = own[use]
    bare = dataclasses.replace(
        seen.unlabeled, columns=seen.labeled.columns, client=use // many, deployment=use % many,
        stratum=np.zeros(len(use), np.int64), count=count[use], mean=np.column_stack([mean, value])[use], squares=whole,
    )  # fmt: skip
    return merge(seen.labeled, bare)


def _with_labels(kept: Draw, foretold: np.ndarray) -> Draw:
    rows = kept.rows.copy()
    rows[:, -1] = np.where(np.isnan(rows[:, -1]), foretold, rows[:, -1])
    return dataclasses.replace(kept, rows=rows)

"""A threshold: people just above and just below it differ only in the decision."""

import numpy as np
from scipy import stats

from performative.audit.causes.density import density_test
from performative.audit.causes.estimate import Estimate, Refused, known_outcomes, with_interval
from performative.audit.causes.local_polynomial import Bandwidths, Side, bandwidths, one_side, weights
from performative.audit.causes.table import Table

# Rows that each side needs in total, rows within the bandwidth, and distinct scores there.
_ROWS, _NEAR, _VALUES = 100, 20, 10
# Two checks at this level: one valid log in twenty is refused.
_PRETEST = 0.025


def threshold(table: Table, level: float = 0.95) -> Estimate:
    """The jump in the mean outcome at the threshold.

        tau = E[y | s = c+] - E[y | s = c-]
        tau_bc = sum_i (l_i - b_h v_i) y_i,      b_h = sum_i l_i x_i^2

    l are the weights of a local line at the MSE-optimal bandwidth h, v those of the curvature of a local quadratic at
    its own bandwidth b, which removes the leading bias; the interval uses the variance of tau_bc as a whole
    (robust bias correction: Calonico, Cattaneo and Titiunik 2014). Triangular kernel, nearest-neighbor variances.

    Refused: scores that bunch on one side (`density_test`), features that jump, decisions that do not follow the
    threshold, scores with few distinct values. Rows whose decision was randomized are dropped: the threshold does not
    decide them.
    """
    if table.score is None or table.threshold is None:
        raise Refused("no-threshold", score=table.score is not None)
    if table.randomized is not None:
        table = table.where(~table.randomized)
    if table.decision is not None and table.rows:
        table = table.where(known_outcomes(table.outcome, table.decision))
    else:
        table = table.where(np.isfinite(table.outcome))
    assert table.score is not None and table.threshold is not None
    x = table.score - table.threshold
    sign = _direction(table, x)
    above = x >= 0
    if min(above.sum(), (~above).sum()) < _ROWS:
        raise Refused("few-at-threshold", least=_ROWS, above=int(above.sum()), below=int((~above).sum()))
    values = min(len(np.unique(x[above])), len(np.unique(x[~above])))
    if values < 2 * _VALUES:
        raise Refused("few-scores", values=values, least=2 * _VALUES)
    heap = density_test(x)
    if heap.p_value < _PRETEST:
        raise Refused(
            "manipulation", "warning", p_value=heap.p_value, above=max(heap.above, 0.0), below=max(heap.below, 0.0),
            nearest=heap.nearest, nearest_above=heap.nearest_above,
        )  # fmt: skip
    found, sides = jump(x, table.outcome)
    estimate, error, plain, width = found
    near = [int(np.sum(np.abs(side.x) < width.h)) for side in sides]
    kinds = min(len(np.unique(side.x[np.abs(side.x) < width.h])) for side in sides)
    if min(near) < _NEAR or kinds < _VALUES:
        raise Refused("few-near-threshold", least=_NEAR, rows=min(near), values=kinds)
    smooth = _placebo(table, x)
    diagnostics = {
        "bandwidth": width.h, "bias_bandwidth": width.b, "rows_below": near[0], "rows_above": near[1],
        "uncorrected": sign * plain, "density_p": heap.p_value, "features_p": smooth,
    }  # fmt: skip
    return with_interval(sign * estimate, error, np.inf, level, table.rows, "threshold", diagnostics)


def jump(x: np.ndarray, y: np.ndarray) -> tuple[tuple[float, float, float, Bandwidths], tuple[Side, Side]]:
    """tau_bc, its standard error, tau without correction, and the bandwidths; then the two sides. x is s - c."""
    left, right = one_side(x[x < 0], y[x < 0]), one_side(x[x >= 0], y[x >= 0])
    width = bandwidths(left, right)
    estimate = plain = variance = 0.0
    for sign, side in ((-1, left), (1, right)):
        line, curve = weights(side.x, width.h, 1, 0), weights(side.x, width.b, 2, 2)
        corrected = line - float(line @ side.x**2) * curve
        estimate += sign * float(corrected @ side.y)
        plain += sign * float(line @ side.y)
        variance += float(corrected**2 @ side.s2)
    return (estimate, float(np.sqrt(variance)), plain, width), (left, right)


def _direction(table: Table, x: np.ndarray) -> int:
    """1 if scores above the threshold have decision 1, -1 if those below do."""
    if table.decision is None:
        return 1
    above = x >= 0
    agrees = float(np.mean((table.decision == 1) == above))
    if table.decision.min() == table.decision.max():
        raise Refused("one-decision", value=int(table.decision[0]))
    # A score on the threshold itself may go either way.
    off = np.abs(x) > 0
    if np.all((table.decision == 1)[off] == above[off]):
        return 1
    if np.all((table.decision == 1)[off] == ~above[off]):
        return -1
    raise Refused("fuzzy", share=float(min(agrees, 1 - agrees)))


def _placebo(table: Table, x: np.ndarray) -> float | None:
    """The smallest p-value for a jump in a feature, with Bonferroni over features; refused if it is small."""
    if table.features is None:
        return None
    p, names = [], []
    for k, name in enumerate(table.names):
        column = table.features[:, k]
        # A constant feature, or one equal to the score, cannot jump.
        if len(np.unique(column)) < 2 or bool(np.all(column == table.score)):
            continue
        estimate, error, _, _ = jump(x, column)[0]
        if error > 1e-9 * column.std():
            p.append(float(2 * stats.norm.sf(abs(estimate) / error)))
            names.append(name)
    if not p:
        return None
    least = min(1.0, len(p) * min(p))
    if least < _PRETEST:
        raise Refused("features-jump", "warning", feature=names[int(np.argmin(p))], p_value=least)
    return least

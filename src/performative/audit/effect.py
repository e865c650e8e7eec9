"""Is there a performative effect at all, or only drift that would have happened anyway?"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import stats

from performative.audit.drift import deviations, lost, plausible
from performative.audit.instruments import weights
from performative.audit.log import ClientLog
from performative.compare import holm

# If less than this share of a parameter's movement is left after removing the trend, trend and model are confounded.
_SHARE_LEFT = 1e-3
# Parameters that move less than this, relative to their size, count as fixed.
_STILL = 1e-9
# Minimum degrees of freedom for a variance estimate.
_LEAST = 3
# Floor on the within-deployment variance, in units of that of all rows.
_FLOOR = 0.1


@dataclass(frozen=True, eq=False)
class Effect:
    """The result of `effect_test`.

    Attributes:
        p_value: for no effect, over all columns together
        p_any_drift: the same if drift may be as large as the whole observed movement, including the model's part: small
            only if the models left the path of the data, by hand or at random
        statistic: the largest |t|, over columns, parameters and both kinds of weights, at the best-fitting drift
        over_dispersion: [q] variance of the means beyond trend and response, in units of the sampling variance
        by_column: [q] p-values of the columns, Holm's correction included
        column: the column with the smallest p-value, parameter: the parameter that it reacts to
        detectable: [q, d] the response (column units per unit of the parameter) detected with 90% power
        identified: False if these deployments cannot tell; then p_value is 1 and `reasons` say why
    """

    p_value: float
    statistic: float
    over_dispersion: np.ndarray
    by_column: np.ndarray
    column: str
    parameter: str
    detectable: np.ndarray
    identified: bool
    reasons: tuple[str, ...]
    drift: str
    p_any_drift: float = 1.0


class Tested(NamedTuple):
    """Arrays with leading batch axes: p_value [...], columns [..., q] before Holm, t [..., q, d] and so on."""

    p_value: np.ndarray
    p_any_drift: np.ndarray
    columns: np.ndarray
    t: np.ndarray
    over_dispersion: np.ndarray
    standard_error: np.ndarray


def effect_arrays(y: np.ndarray, variance: np.ndarray, theta: np.ndarray, time: np.ndarray, drift: str) -> Tested:
    """The test of `effect_test` for many data sets at once: y, variance [..., q, T], theta [..., T, d], time [T]."""
    n, d = time.shape[0] - lost(drift), theta.shape[-1]
    used = residual_rank(n, d)
    instruments = weights(theta, n)
    found: list[tuple[np.ndarray, ...]] = []
    for u, D, logdet in deviations(y, variance, theta, time, drift):
        rss, spent = residual_squares(u, D, used)
        phi = rss / (n - used)
        # Sampling alone gives 1: a drift so large that less is left for the noise is implausible.
        least = np.maximum(phi, 1.0)
        likelihood = -logdet - spent - (n - used) * np.log(least) - rss / least
        whole = (u**2).sum(axis=-1)
        alone = np.maximum(whole / n, 1.0)
        without = -logdet - n * np.log(alone) - whole / alone
        each = np.stack([np.einsum("...dn,...qn->...qd", w, u) for w in instruments]) / np.sqrt(phi)[..., None]
        gain = np.stack([np.einsum("...dn,...qnd->...qd", w, D) for w in instruments])
        best = np.take_along_axis(each, np.abs(each).argmax(axis=0)[None], axis=0)[0]
        p = 2 * stats.t.sf(np.abs(best).max(axis=-1), n - used)
        # Two kinds of weights and d parameters were tried.
        error = np.sqrt(phi)[..., None] / np.maximum(np.abs(gain).max(axis=0), 1e-300)
        found.append((likelihood, without, np.minimum(1.0, 2 * d * p), best, phi, error))
    likelihood, without, p, t, phi, error = (np.stack(part) for part in zip(*found, strict=True))
    columns = np.where(plausible(likelihood), p, 0.0).max(axis=0)
    # Drifts that would explain the data with no response at all.
    any_drift = np.where(plausible(likelihood) | plausible(without), p, 0.0).max(axis=0)
    at = likelihood.argmax(axis=0)
    q = y.shape[-2]
    return Tested(
        np.minimum(1.0, q * columns.min(axis=-1)),
        np.minimum(1.0, q * any_drift.min(axis=-1)),
        columns,
        np.take_along_axis(t, at[None, ..., None], axis=0)[0],
        np.take_along_axis(phi, at[None], axis=0)[0],
        # The largest that the data do not rule out, as with the p-value.
        np.where(plausible(likelihood)[..., None], error, 0.0).max(axis=0),
    )


def residual_rank(n: int, d: int) -> int:
    """How many directions of the model are projected out before the variance is estimated: all, or a third of n."""
    return max(1, min(d, n // 3))


def residual_squares(u: np.ndarray, D: np.ndarray, used: int) -> tuple[np.ndarray, np.ndarray]:
    """[..., q] residual sum of squares of u given the model, and the log determinant of the projection.

    If there are more parameters than `used`, only their leading directions are projected out.
    """
    if D.shape[-1] > used:
        left, values, _ = np.linalg.svd(D, full_matrices=False)
        basis, size = left[..., :used], values[..., :used]
    else:
        basis, upper = np.linalg.qr(D)
        size = np.abs(np.diagonal(upper, axis1=-2, axis2=-1))
    fit = np.einsum("...ni,...n->...i", basis, u)
    spent = 2 * np.log(np.maximum(size, 1e-300)).sum(axis=-1)
    return np.maximum((u**2).sum(axis=-1) - (fit**2).sum(axis=-1), 1e-300), spent


def effect_test(log: ClientLog, drift: str = "smooth") -> Effect:
    """Test whether the data respond to the model, against drift that does not depend on it.

        mean_t = a + b t + m_t + B theta_t + e_t,   Var(e_t) = phi within_t / count_t,  phi >= 1;   H0: B = 0
        t_jk = sum_t w_t u_jt / sqrt(phi_j) ~ Student(n - d),      sum_t w_t^2 = 1

    u are forward deviations of the means (`drift.deviations`): free of level and trend, independent of everything
    before t. w_t depends only on models deployed up to t (`instruments`), and theta_t may depend on all data before t.
    So given the past the last term is normal with variance phi times the remaining budget, whatever its sign; hence,
    by induction from the last term to the first, sum_t w_t u_jt is N(0, phi) exactly for normal means, however the
    models were trained. Student's t, with phi estimated given the model, is an approximation: false alarms were 1 to
    5% at level 5% in simulations. p-values are Bonferroni's over columns, parameters and two kinds of weights (for
    models that converge, and for models that move around).

    Args:
        drift: "none"; "linear" (a + b t); "walk" (m_t a random walk of unknown size); "smooth" (a walk whose slope
            walks too, or a wave of any amplitude and period, such as a season: `drift.guesses`). The p-value is the
            largest over all m_t that the data do not rule out once a response is allowed.

    Not covered: a drift that converges by itself as retrained models do (a shock in the first deployments that fades),
    several large waves at once, and drift that has the same causes as the model. Models retrained on such data follow
    them, and the test can then give false alarms in most logs: `p_any_drift` stays high there, and the verdict of an
    audit says so. Models chosen by hand or at random, regardless of the data, make the test safe. "linear" is fooled
    by walks, waves and jumps.
    """
    q, T = log.mean.shape[1], log.deployments
    moves = moving(log.theta)
    reasons = why_not(log, drift)
    if reasons:
        return no_test(log, drift, *reasons)
    found = effect_arrays(*means_and_variances(log), log.theta[:, moves], log.time, drift)
    column = int(found.columns.argmin())
    parameter = np.flatnonzero(moves)[int(np.abs(found.t[column]).argmax())]
    n, d = T - lost(drift), int(moves.sum())
    # The level at which one pair of column and parameter is tested.
    critical = stats.t.isf(0.05 / (4 * d * q), n - residual_rank(n, d)) + stats.norm.isf(0.1)
    detectable = np.full((q, log.theta.shape[1]), np.inf)
    detectable[:, moves] = critical * found.standard_error
    return Effect(
        float(found.p_value), float(np.abs(found.t).max()), found.over_dispersion, holm(found.columns),
        log.columns[column], log.parameters[parameter], detectable, True, (), drift, float(found.p_any_drift),
    )  # fmt: skip


def no_test(log: ClientLog, drift: str, *reasons: str) -> Effect:
    """The result if these rows cannot tell."""
    q, d = log.mean.shape[1], log.theta.shape[1]
    nothing = np.full((q, d), np.inf)
    return Effect(1.0, 0.0, np.ones(q), np.ones(q), "", "", nothing, False, reasons, drift)


def why_not(log: ClientLog, drift: str) -> tuple[str, ...]:
    """Why these deployments cannot tell an effect from drift; empty if they can."""
    k, moves = lost(drift), moving(log.theta)
    reasons = []
    need = k + 1 + _LEAST
    if log.deployments < need:
        reasons.append(f"{log.deployments} deployments; drift={drift!r} needs {need} or more.")
    if not moves.any():
        reasons.append("the model hardly changed from deployment to deployment.")
    elif log.deployments > k:
        basis = np.vander((log.time - log.time[0]) / np.ptp(log.time), k, increasing=True)
        theta = log.theta[:, moves] - log.theta[:, moves].mean(axis=0)
        left = theta - basis @ np.linalg.lstsq(basis, theta, rcond=None)[0]
        share = (left**2).sum(axis=0) / (theta**2).sum(axis=0)
        if np.all(share < _SHARE_LEFT):
            reasons.append(
                "the model moved linearly in time, so it is indistinguishable from a trend; deploy a model off that "
                "line, or test with drift='none' if there can be no trend."
            )
    return tuple(reasons)


def moving(theta: np.ndarray) -> np.ndarray:
    """[d] which parameters changed at all."""
    return np.ptp(theta, axis=0) > _STILL * np.maximum(np.abs(theta).max(axis=0), 1e-300)


def means_and_variances(log: ClientLog) -> tuple[np.ndarray, np.ndarray]:
    """The means [q, T] and their sampling variances [q, T], floored at a tenth of the pooled variance.

    The floor is for deployments whose few rows happen to be equal, such as a rare label that never occurred.
    """
    pooled = log.spread**2
    still = np.flatnonzero(pooled <= 0)
    if len(still):
        names = [log.columns[j] for j in still[:5]]
        raise ValueError(
            f"columns {names} are constant within deployments; drop them: there is no noise to test against."
        )
    y, variance = log.series
    return y, np.maximum(variance, _FLOOR * pooled[:, None] / log.count)

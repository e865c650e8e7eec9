"""Level and slope of one client's means at present, with draws that reflect their uncertainty."""

from typing import NamedTuple

import numpy as np

from performative.audit.drift import lost
from performative.audit.effect import means_and_variances
from performative.audit.log import ClientLog


class Fit(NamedTuple):
    """mean(theta) = level + B (theta - here) at the time of the last deployment; here = theta_T.

    level [q], B [q, d]; draws of both, [r, q] and [r, q, d], reflect their standard errors; `means` [T, q] are fitted.
    """

    level: np.ndarray
    B: np.ndarray
    level_draws: np.ndarray
    B_draws: np.ndarray
    here: np.ndarray
    means: np.ndarray


def fit(log: ClientLog, drift: str = "linear", draws: int = 500, seed: int = 0) -> Fit:
    """Weighted least squares of the means on time and model.

        mean_t = level + b (t - t_T) + B (theta_t - theta_T) + e_t,      Var(e_t) = phi within_t / count_t

    Args:
        drift: "none" omits b.

    The draws are normal around the estimate, with Student's factor; columns covary as their residuals do. This is least
    squares: see `response` for intervals of B that are valid however models were trained.
    """
    if drift not in ("none", "linear"):
        raise ValueError(f"fit: drift must be 'none' or 'linear'; got {drift!r}.")
    T, d = log.theta.shape
    here = log.theta[-1]
    trend = [(log.time - log.time[-1]) / max(np.ptp(log.time), 1e-300)] if lost(drift) == 2 else []
    X = np.column_stack([np.ones(T), *trend, log.theta - here])
    df = T - X.shape[1]
    if df < 1:
        raise ValueError(
            f"fit: {T} deployments are too few for {X.shape[1]} unknowns per column; needs {X.shape[1] + 1}."
        )
    y, variance = means_and_variances(log)
    size = np.sqrt(variance)
    loading = np.linalg.pinv(X / size[..., None]) / size[:, None, :]
    beta = np.einsum("qpt,qt->qp", loading, y)
    left = (y - beta @ X.T) / size
    # Residuals show how columns covary; each varies at least as much as sampling alone implies.
    phi = np.maximum((left**2).sum(axis=1) / df, 1.0)
    left *= np.sqrt(phi / np.maximum((left**2).sum(axis=1), 1e-300))[:, None]
    rng = np.random.default_rng(seed)
    shocks = rng.standard_normal((draws, T, T)) @ left.T * np.sqrt(df / rng.chisquare(df, draws))[:, None, None]
    sampled = beta + np.einsum("qpt,qt,rtq->rqp", loading, size, shocks)
    first = X.shape[1] - d
    return Fit(beta[:, 0], beta[:, first:], sampled[..., 0], sampled[..., first:], here, X @ beta.T)

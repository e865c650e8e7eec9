"""Retraining on finite samples: the point that a sequence of fitted models converges to, from the models alone."""

import numpy as np

from performative.inference.outcome import Spread, share_of

# Deployments per fitted number, and relaxation times, below which a fit is unreliable: 95% intervals then cover the
# truth in less than 94% of runs.
_EACH, _TIMES = 20, 40.0


def autoregression(x: np.ndarray) -> Spread:
    """The fixed point of theta_{t+1} = a + M theta_t + noise, from models [repeats, T + 1, d], the start first.

        theta_PS = (I - M)^-1 a,    cov = (I - M)^-1 Sigma (I - M)^-T  v^T (X^T X)^-1 v,    v = (1, theta_PS)

    a and M by least squares, Sigma from the residuals. M is the response of retraining to a small change of the
    deployed model; least squares shrinks it, which is corrected to first order (Nicholls and Pope 1988). With n rows
    per deployment Sigma is the sampling noise of n rows, so n need not be known. A fit that is biased on few rows (by
    about 1 / n: a penalty, a nonlinear loss) makes retraining converge to another point, which the models do not show.
    """
    count, d = x.shape[1:]
    T = count - 1
    if d + 3 > T:
        raise ValueError(f"confidence: {T} deployments are too few to fit {d + 1} numbers to each coordinate.")
    middle = x[:, :-1].mean(axis=1, keepdims=True)
    before, after = x[:, :-1] - middle, x[:, 1:] - middle
    gram = np.einsum("rtj,rtk->rjk", before, before)
    level, narrow = after.mean(axis=1), np.linalg.pinv(gram, rcond=1e-12, hermitian=True)
    M = np.swapaxes(narrow @ np.einsum("rtj,rtk->rjk", before, after), 1, 2)
    rest = after - level[:, None] - np.einsum("rjk,rtk->rtj", M, before)
    sigma = np.einsum("rtj,rtk->rjk", rest, rest) / (T - d - 1)
    grows = np.abs(np.linalg.eigvals(M)).max(axis=1) >= 1
    M = M + _shrunk(M, sigma) / T
    values = np.linalg.eigvals(M)
    most = np.abs(values).max(axis=1)
    M = np.where((most < 1)[:, None, None], M, M * (0.999 / np.maximum(most, 1e-300))[:, None, None])
    few = (T * np.abs(1 - values).min(axis=1) < _TIMES) | (_EACH * (d + 1) > T)
    inverse = np.linalg.inv(np.eye(d) - M)
    away = np.einsum("rjk,rk->rj", inverse, level)
    size = 1.0 / T + np.einsum("rj,rjk,rk->r", away, narrow, away)
    covariance = inverse @ sigma @ np.swapaxes(inverse, 1, 2) * size[:, None, None]
    doubts = []
    if np.any(grows):
        doubts.append(f"in {share_of(grows)} retraining has not settled: errors grow from one deployment to the next.")
    if np.any(few):
        doubts.append(
            f"in {share_of(few)} the run is too short: {T} deployments are few for {d + 1} numbers and for an "
            f"error that each deployment multiplies by {np.median(most):.2g}. The interval may be off."
        )
    return Spread(middle[:, 0] + away, covariance, float(T - d - 1), T, "autoregression", tuple(doubts))


def _shrunk(M: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """T times the downward bias of least squares in M, to first order; in one dimension 1 + 3 M.

    Sigma [(I - M')^-1 + M' (I - M'^2)^-1 + sum_l l (I - l M')^-1] Gamma^-1 over the eigenvalues l of M, Gamma the
    covariance of the models: Nicholls and Pope 1988.
    """
    d = M.shape[1]
    eye, back = np.eye(d), np.swapaxes(M, 1, 2)
    values = np.linalg.eigvals(M)
    largest = np.abs(values).max(axis=1)
    tame = np.where(largest < 0.99, 1.0, 0.99 / np.maximum(largest, 1e-300))
    back, values = back * tame[:, None, None], values * tame[:, None]
    forward = np.swapaxes(back, 1, 2)
    product = np.einsum("rij,rkl->rikjl", forward, forward).reshape(-1, d * d, d * d)
    gamma = np.linalg.solve(np.eye(d * d) - product, sigma.reshape(-1, d * d, 1)).reshape(-1, d, d)
    inside = np.linalg.inv(eye - back) + back @ np.linalg.inv(eye - back @ back)
    each = values[:, :, None, None] * np.linalg.inv(eye - values[:, :, None, None] * back[:, None])
    total = sigma @ (inside + each.sum(axis=1).real) @ np.linalg.pinv(gamma)
    return np.where(np.isfinite(total), total, 0.0)

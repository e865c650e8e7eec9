"""Whether retraining, or small gradient steps, return to an equilibrium from nearby."""

from collections.abc import Callable

import numpy as np

from performative.solve.landscape import DENSE, Landscape
from performative.solve.roots import safe_step
from performative.solve.seats import keeps_past
from performative.solve.worlds import pass_on, remembers

# Tolerance for treating a singular value as 0, or a spectral radius as 1. The matrices have norm about 1.
_FLAT = 1e-9
# A step that is small against every curvature, in units of 1 / |H + C|.
_SMALL = 1e-3


def attraction(land: Landscape, x: np.ndarray, spells: int | None = 1) -> tuple[float, bool | None, bool | None]:
    """Contraction factor of retraining at an equilibrium, whether it attracts, whether gradient steps settle.

        d Phi = -H^{-1} C,   with a domain  -(I - D (I - s H))^{-1} D s C

    H = d^2 f / d theta_1^2, C = d/d theta_2 grad_1 f, D the derivative of the projection at x - s G(x), any s > 0.
    Directions that affect neither the loss nor the reaction (a constant added to all class scores) are left out. If the
    loss is flat and the reaction is not (prices), Phi is undefined: the factor is NaN, and what matters is whether
    small gradient steps settle. If data remember past models, retraining every `spells` spells is a joint map of model
    and worlds, and the factor is its spectral radius; None waits until the data have settled. In a game all players
    retrain at once, each against the others' last models; if data remember past models, the result is unknown.
    """
    d = land.size
    gradient, hessian = land.value(x, x)[1][:d], land.curvature(x, x)
    if hessian is None or not np.all(np.isfinite(hessian)):
        return np.nan, None, None
    if land.players is not None and keeps_past(land, x):  # several players' models and worlds: not implemented
        return np.nan, None, None
    H, C = hessian[:d, :d], hessian[:d, d:]
    eye, s = np.eye(d), safe_step(H)
    D = land.project_slope(x - s * gradient)
    stays, reaction = eye - D @ (eye - s * H), D @ (s * C)
    left, sizes, right = np.linalg.svd(stays)
    idle = sizes <= _FLAT
    reach = _FLAT * max(float(np.linalg.norm(reaction)), 1.0)
    unnoticed = (
        np.linalg.norm(reaction @ right[idle].T) <= reach and np.linalg.norm(left[:, idle].T @ reaction) <= reach
    )
    settles = _settles(land, x, gradient, H + C, int(np.sum(idle)) if unnoticed else 0)
    if np.max(np.abs(np.linalg.eigvals(D @ (eye - s * H))), initial=0.0) > 1.0 + _FLAT:
        return np.nan, False, settles  # descent on f(. ; x) leaves x, so x is not a minimizer
    if not unnoticed:
        return np.nan, settles, settles
    back = np.linalg.pinv(stays, rcond=_FLAT)
    if spells is None or land.players is not None or not remembers(land.problem, land.like):
        factor = float(np.max(np.abs(np.linalg.eigvals(back @ reaction)), initial=0.0))
        return factor, factor < 1.0, settles
    factor, alone = _with_memory(land, x, back @ (s * D), spells)
    if np.isnan(factor):
        return np.nan, None, None
    return factor, factor < 1.0, settles and alone < 1.0


def _with_memory(land: Landscape, x: np.ndarray, response: np.ndarray, spells: int) -> tuple[float, float]:
    """Spectral radius of (worlds, model) -> (deploy(worlds, model), best response), and of the worlds' part alone.

        w_k = A w_{k-1} + B theta,      theta' = -response (G w_k + F theta),      k = spells

    The model responds to a change r of its gradient by -response r. NaN if it could not be computed.
    """
    n, apply = pass_on(land.problem, land.weights, land.model(x), land.samples)
    d = land.size

    def joint(rows: np.ndarray) -> np.ndarray:
        for _ in range(spells - 1):  # under the same model
            rows = np.concatenate([apply(rows)[:, :n], rows[:, n:]], axis=1)
        after = apply(rows)
        return np.concatenate([after[:, :n], -after[:, n:] @ response.T], axis=1)

    def alone(rows: np.ndarray) -> np.ndarray:
        return apply(np.concatenate([rows, np.zeros((len(rows), d))], axis=1))[:, :n]

    if n + d > DENSE:
        return _radius(joint, n + d), _radius(alone, n)
    once = apply(np.eye(n + d))
    if not np.all(np.isfinite(once)):
        return np.nan, np.nan
    stays = np.concatenate([once[:, :n], np.eye(n + d)[:, n:]], axis=1)
    after = np.linalg.matrix_power(stays, spells - 1) @ once
    matrix = np.concatenate([after[:, :n], -after[:, n:] @ response.T], axis=1)
    if not np.all(np.isfinite(matrix)):
        return np.nan, np.nan
    return _largest(matrix), _largest(once[:n, :n])


def _radius(rows: Callable[[np.ndarray], np.ndarray], size: int) -> float:
    """Spectral radius of a linear map of rows, by Arnoldi's method."""
    from scipy.sparse import linalg

    start = np.random.default_rng(0).standard_normal(size)
    operator = linalg.LinearOperator((size, size), lambda v: rows(v.reshape(1, -1))[0], dtype=np.float64)
    try:
        return float(np.abs(linalg.eigs(operator, k=1, v0=start, return_eigenvectors=False))[0])
    except linalg.ArpackError:
        return np.nan


def _largest(matrix: np.ndarray) -> float:
    return float(np.max(np.abs(np.linalg.eigvals(matrix)), initial=0.0))


def _settles(land: Landscape, x: np.ndarray, gradient: np.ndarray, slope: np.ndarray, idle: int) -> bool:
    """Whether x <- P(x - s G(x)) returns to x for a small s; `idle` directions do not move and do not count."""
    s = _SMALL * safe_step(slope)
    D = land.project_slope(x - s * gradient)
    values = np.linalg.eigvals(D @ (np.eye(len(x)) - s * slope))
    moving = values[np.argsort(np.abs(values - 1.0))[idle:]]
    return bool(np.max(np.abs(moving), initial=0.0) < 1.0 - 1e-13)

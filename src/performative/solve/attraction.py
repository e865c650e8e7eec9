"""Whether retraining, or small gradient steps, return to an equilibrium from nearby."""

import numpy as np

from performative.solve.landscape import Landscape
from performative.solve.roots import safe_step

# How close to 0 a singular value, or to 1 a spectral radius, counts as such. The matrices have norm 1 or so.
_FLAT = 1e-9
# A step that is small against every curvature, in units of 1 / |H + C|.
_SMALL = 1e-3


def attraction(land: Landscape, x: np.ndarray) -> tuple[float, bool | None, bool | None]:
    """Contraction factor of retraining at an equilibrium, whether it attracts, whether gradient steps settle.

        d Phi = -H^{-1} C,   with a domain  -(I - D (I - s H))^{-1} D s C

    H = d^2 f / d theta_1^2, C = d/d theta_2 grad_1 f, D the derivative of the projection at x - s G(x), any s > 0.
    Directions that neither the loss nor the reaction notices (a constant added to all class scores) are left out.
    Where the loss is flat and the reaction is not (prices), Phi is not defined: the factor is NaN, and what counts is
    whether small gradient steps settle.
    """
    d = land.size
    gradient, hessian = land.value(x, x)[1][:d], land.curvature(x, x)
    if hessian is None or not np.all(np.isfinite(hessian)):
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
        return np.nan, False, settles  # descent on f(. ; x) leaves x, so x is no minimiser
    if not unnoticed:
        return np.nan, settles, settles
    factor = float(np.max(np.abs(np.linalg.eigvals(np.linalg.pinv(stays, rcond=_FLAT) @ reaction)), initial=0.0))
    return factor, factor < 1.0, settles


def _settles(land: Landscape, x: np.ndarray, gradient: np.ndarray, slope: np.ndarray, idle: int) -> bool:
    """Whether x <- P(x - s G(x)) returns to x for a small s; `idle` directions stand still and do not count."""
    s = _SMALL * safe_step(slope)
    D = land.project_slope(x - s * gradient)
    values = np.linalg.eigvals(D @ (np.eye(len(x)) - s * slope))
    moving = values[np.argsort(np.abs(values - 1.0))[idle:]]
    return bool(np.max(np.abs(moving), initial=0.0) < 1.0 - 1e-13)

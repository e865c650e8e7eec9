"""Tracking data that drift on their own, exactly: the lag, the noise, and the best choice.

    Z_i ~ N(m_i + v_i t + eps_i theta, scale_i^2),   l(theta; z) = (theta - z)^2 / 2

With c = 1 - eps_bar the stable point moves by v_bar / c per unit of time. Full participation, one deployment per unit
of time. The setting is that of Lee and Zrnic 2026.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from performative._base.arguments import Count, Positive, Values, checked
from performative.theory.gaussian import with_weights

__all__ = ["DriftError", "best_period", "best_step", "drift_error", "retraining_error"]


@dataclasses.dataclass(frozen=True)
class DriftError:
    """A mean square distance to the moving stable point, in the long run.

    Attributes:
        lag: the squared mean lag of training; noise: the variance around that
    """

    lag: float
    noise: float

    @property
    def total(self) -> float:
        return self.lag + self.noise


@checked
def drift_error(
    velocity: Values, sensitivity: Values, scale: Values, eta: float, *, weights: Values | None = None, batch: Count = 1
) -> DriftError:
    """The limit of E(theta_t - theta_PS,t)^2 for constant step size eta, E = 1.

        (v_bar / (c^2 eta))^2 + eta s^2 / (c (2 - eta c)),      s^2 = sum_i p_i^2 scale_i^2 / n

    Args:
        velocity, sensitivity, scale: v_i, eps_i and the standard deviation, a number or one per client
        batch: n, samples per step

    Holds for 0 < eta < 2 / c. Small steps lag behind, large ones are noisy: see `best_step`.
    """
    v, c, s2 = _averages("drift_error", velocity, sensitivity, scale, weights, batch)
    if not 0 < eta * c < 2:
        raise ValueError(f"drift_error: eta must lie between 0 and 2 / (1 - eps_bar) = {2 / c:.6g}; got {eta:g}.")
    return DriftError((v / (c**2 * eta)) ** 2, eta * s2 / (c * (2 - eta * c)))


@checked
def best_step(
    velocity: Values, sensitivity: Values, scale: Values, *, weights: Values | None = None, batch: Count = 1
) -> float:
    """The constant step with the smallest `drift_error`: eta = x / c, x the root of one cubic.

        x^3 s^2 = v_bar^2 (2 - x)^2,      0 < x < 2

    It is about (4 v_bar^2 / s^2)^(1/3) / c if the data move little per unit of time relative to their noise.
    """
    v, c, s2 = _averages("best_step", velocity, sensitivity, scale, weights, batch)
    if v == 0:
        raise ValueError("best_step: velocity is 0 on average, so smaller steps are better; use a decaying rate.")
    if s2 == 0:
        raise ValueError("best_step: scale is 0: without noise larger steps are better, up to 2 / (1 - eps_bar).")
    ratio = v**2 / s2
    # x^3 grows and (2 - x)^2 falls on (0, 2): one root there.
    roots = np.roots([1.0, -ratio, 4.0 * ratio, -4.0 * ratio])
    inside = [x.real for x in roots if abs(x.imag) < 1e-9 * (1.0 + abs(x)) and 0 < x.real < 2]
    return float(min(inside, key=lambda x: abs(x**3 - ratio * (2 - x) ** 2))) / c


@checked
def retraining_error(
    velocity: Values, sensitivity: Values, scale: Values, period: Count, *, weights: Values | None = None,
    rows: Count = 1,
) -> DriftError:  # fmt: skip
    """The mean of E(theta - theta_PS,t)^2 over time if a model is trained to the minimum every `period` units.

        theta_{j+1} = mean of n rows per client at time j P,  deployed from (j + 1) P on
        lag at age a = 0, ..., P - 1:   v_bar P / c^2 + v_bar a / c,      variance  s^2 / (1 - eps_bar^2)

    s^2 = sum_i p_i^2 scale_i^2 / n. Needs |eps_bar| < 1. With P = 1 the lag is v_bar / c^2.
    """
    v, c, s2 = _averages("retraining_error", velocity, sensitivity, scale, weights, rows)
    _check_contracts("retraining_error", c)
    return DriftError(v**2 * _square_lag(period, c), s2 / (1.0 - (1.0 - c) ** 2))


@checked
def best_period(velocity: Values, sensitivity: Values, cost: Positive, *, weights: Values | None = None) -> int:
    """The period P with the smallest mean square lag + cost / P, if one retraining costs `cost` squared units of theta.

    The lag of `retraining_error` is quadratic in P, so the best real P solves a cubic, and the best integer is next to
    it.
    """
    v, c, _ = _averages("best_period", velocity, sensitivity, 0.0, weights, 1)
    _check_contracts("best_period", c)
    if v == 0:
        raise ValueError("best_period: velocity is 0 on average: the point stands still, and no retraining is needed.")
    a, b = 1 / c**4 + 1 / c**3 + 1 / (3 * c**2), -(1 / c**3 + 1 / (2 * c**2))
    roots = np.roots([2 * a, b, 0.0, -cost / v**2])
    real = max(x.real for x in roots if abs(x.imag) < 1e-9 * (1.0 + abs(x)))
    near = {max(1, math.floor(real)), max(1, math.ceil(real))}
    return min(near, key=lambda P: v**2 * _square_lag(P, c) + cost / P)


def _square_lag(P: int, c: float) -> float:
    """Mean over a = 0, ..., P - 1 of (P / c^2 + a / c)^2."""
    return P**2 / c**4 + P * (P - 1) / c**3 + (P - 1) * (2 * P - 1) / (6 * c**2)


def _averages(
    owner: str, velocity: Any, sensitivity: Any, scale: Any, weights: Any, rows: int
) -> tuple[float, float, float]:
    """v_bar, c = 1 - eps_bar > 0 and s^2."""
    v, eps, sd, p = with_weights(weights, velocity=velocity, sensitivity=sensitivity, scale=scale)
    if np.any(sd < 0):
        raise ValueError(f"{owner}: scale is a standard deviation and must be >= 0; got {scale}.")
    c = 1.0 - float(p @ eps)
    if not c > 0:
        raise ValueError(f"{owner} needs an average sensitivity below 1; it is {1.0 - c:.6g}.")
    return abs(float(p @ v)), c, float(np.sum(p**2 * sd**2)) / rows


def _check_contracts(owner: str, c: float) -> None:
    if not c < 2:
        raise ValueError(
            f"{owner} needs an average sensitivity above -1, otherwise retraining diverges; it is {1 - c:g}."
        )

r"""Evidence from random moves of the models alone: exact, whatever the drift and the rows.

    u_t = x_t (y_t - f_t - b x_t) / c_t,      E(b) = mean_rho Int exp(lambda sum u - lambda^2 sum u^2 / 2) dN(0, rho)

x_t is the random part of the deployed model, symmetric about 0 and independent of everything else; f_t and c_t, a
forecast and a scale, depend on the past only. If data do not react (b = 0), or shift by b x_t, the sign of u_t is a
fair coin given everything else, so each factor has mean at most 1 (de la Pena 1999): no variance is estimated,
normality is not needed, and drift may be anything. Several parameters must be drawn independently of each other.
"""

from typing import NamedTuple

import numpy as np

# Variances of lambda: u is about 1 in size.
_RHO = (1.0, 0.1, 0.01, 1e-3)
# Memory of the forecast and of the scales, in looks.
_MEMORY = 10.0


class Signs(NamedTuple):
    """Sums of products of x [..., d] and r = y - f [..., q], divided by powers of c; and the inputs of f and c."""

    looks: int
    level: np.ndarray  # [..., q]
    rough: np.ndarray  # [..., q] mean of r^2
    size: np.ndarray  # [..., d] mean of x^2
    xr: np.ndarray  # [..., d, q], and the others like it
    xx: np.ndarray
    xr_squares: np.ndarray
    xxxr: np.ndarray
    xxxx: np.ndarray


def begin(columns: int, parameters: int, lead: tuple[int, ...] = ()) -> Signs:
    """Empty sums."""
    zeros = [np.zeros((*lead, parameters, columns)) for _ in range(5)]
    return Signs(0, np.zeros((*lead, columns)), np.zeros((*lead, columns)), np.zeros((*lead, parameters)), *zeros)


def look(signs: Signs, y: np.ndarray, x: np.ndarray) -> Signs:
    """Update the sums by one look; the first two only set level and scale."""
    if signs.looks == 0:
        return signs._replace(looks=1, level=y, size=x**2)
    r = y - signs.level
    rate = max(1 / signs.looks, 1 / _MEMORY)
    after = signs._replace(
        looks=signs.looks + 1,
        level=signs.level + rate * r,
        rough=signs.rough + rate * (r**2 - signs.rough),
        size=signs.size + rate * (x**2 - signs.size),
    )
    c = np.sqrt(signs.size[..., :, None] * signs.rough[..., None, :])
    if signs.looks == 1 or not np.any(c > 0):
        return after
    weight = np.where(c > 0, 1 / np.where(c > 0, c, 1.0), 0.0)
    x, r = x[..., :, None], r[..., None, :]
    return after._replace(
        xr=signs.xr + x * r * weight,
        xx=signs.xx + x**2 * weight,
        xr_squares=signs.xr_squares + (x * r * weight) ** 2,
        xxxr=signs.xxxr + x**3 * r * weight**2,
        xxxx=signs.xxxx + x**4 * weight**2,
    )


def log_evidence(signs: Signs, strength: np.ndarray | float = 0.0) -> np.ndarray:
    """[d, q] log E(b)."""
    b = np.asarray(strength)
    total = signs.xr - b * signs.xx
    squares = np.maximum(signs.xr_squares - 2 * b * signs.xxxr + b**2 * signs.xxxx, 0.0)
    parts = np.array([-0.5 * np.log1p(rho * squares) + 0.5 * rho * total**2 / (1 + rho * squares) for rho in _RHO])
    return np.asarray(np.logaddexp.reduce(parts, axis=0) - np.log(len(_RHO)))


def estimate(signs: Signs) -> tuple[np.ndarray, np.ndarray]:
    """[d, q] the strength that leaves no correlation with x, and its standard error; NaN before there are data."""
    with np.errstate(divide="ignore", invalid="ignore"):
        center = signs.xr / signs.xx
        squares = signs.xr_squares - 2 * center * signs.xxxr + center**2 * signs.xxxx
        error = np.sqrt(np.maximum(squares, 0.0)) / signs.xx
    unknown = ~(signs.xx > 0) | ~(error > 0)
    return np.where(unknown, np.nan, center), np.where(unknown, np.nan, error)

"""The least evidence over an unknown level and trend, in closed form for each guess of the drift."""

from typing import Any, NamedTuple

import numpy as np

from performative.watch.elimination import eliminate, solve

# Shares of the two terms of M.
_SHARES = (0.9, 0.1)
# Variances of B, in units of phi / (first move of the parameter)^2: effects of 0.2 to 200 standard errors for it.
_EFFECTS = (0.03, 3.0, 3e2, 3e4)
# Precisions of a possible trend, in units of one look: 1 and 0.03 standard errors per look.
_TRENDS = (1.0, 1e3)
# Precision of the coefficient of an innovation, times phi: most of its mass lies between -1 and 1.
_LAG = 4.0
_TINY = 1e-100
# Floor on the noise variance, in units of the mean square, for models and data without any noise.
_NOISE = 1e-18
# For regressions on a single look: small compared with what any look adds.
RIDGE = 1e-9


class Nuisance(NamedTuple):
    """Sums over looks, [..., G] with p columns of unknown coefficients besides one parameter t.

    Attributes:
        gram: [p, p, ..., G] of those columns; y, z, t: [p, ..., G] with the data, the weights and the parameter
        kinds: what each of the p columns is, from `kinds`
        yy, ty, zy, tt, zz: the rest; unit: the square of the parameter's first move
    """

    looks: Any
    log_variance: Any
    unit: Any
    gram: Any
    kinds: Any
    y: Any
    z: Any
    t: Any
    yy: Any
    ty: Any
    zy: Any
    tt: Any
    zz: Any


def least_evidence(sums: Nuisance, xp: Any = np) -> Any:
    r"""[...] a lower bound of log inf_{g, beta} M(g, beta).

    Along beta = beta_hat + s (the direction in which sum z x~ beta grows fastest) the two terms are, with delta = sum z
    (y~ - x~ beta_hat), V = sum z^2 and D = (sum z x~)(sum x~ x~')^-1 (sum z x~)',

        A(s) = log 0.9 - log(1 + rho V) / 2 + (delta - s)^2 / (2 phi (V + 1 / rho)),     C(s) = C(0) + s^2 / (2 phi D)

    one decreases and the other increases from s = 0 to delta. log(e^A + e^C) >= max(A, C), whose minimum is C(0) if
    that is above A(0), and otherwise at their crossing, a root of a quadratic. As phi is estimated, x = Z^2 / 2 of a
    normal becomes nu / 2 log(1 + 2 x / nu), that of Student's t with nu degrees of freedom, which is smaller. For
    several rho, the log of the mean is at least the largest minus the log of their number.
    """
    n, p = sums.looks, len(sums.gram)
    ridge = RIDGE * np.eye(p).reshape(p, p, *(1,) * (sums.gram.ndim - 2))
    beside = solve(sums.gram + ridge, xp.stack(xp.broadcast_arrays(sums.y, sums.z, sums.t), 1), xp)
    unexplained = xp.maximum(sums.yy - (sums.y * beside[:, 0]).sum(0), _TINY)
    left = xp.maximum(sums.tt - (sums.t * beside[:, 2]).sum(0), _TINY)
    fit = sums.ty - (sums.t * beside[:, 0]).sum(0)
    noise = xp.maximum(unexplained - fit**2 / left, _NOISE * sums.yy)
    degrees = xp.maximum(n - p - 1, 1)
    phi = xp.maximum(noise, _TINY) / degrees
    base = -0.5 * n * xp.log(2 * np.pi * phi) - 0.5 * sums.log_variance
    ruled_out = log_marginal(sums, phi, base, xp)[..., None] - base + unexplained / (2 * phi) + np.log(_SHARES[1])
    delta = xp.abs(sums.zy - (sums.y * beside[:, 1]).sum(0))
    V = xp.maximum(sums.zz, _TINY)
    D = xp.clip((sums.z * beside[:, 1]).sum(0), 1e-12 * V, V)
    found = []
    for effect in _EFFECTS:
        rho = effect / xp.maximum(sums.unit, _TINY)
        falls = 1 / (2 * phi * (V + 1 / rho))
        grows = 1 / (2 * phi * D)
        bottom = np.log(_SHARES[0]) - 0.5 * xp.log1p(rho * V)
        at_zero = bottom + falls * delta**2 - ruled_out
        half = falls * delta
        # (falls - grows) s^2 - 2 half s + at_zero = 0, in the form that avoids cancellation.
        wide = xp.sqrt(xp.maximum(half**2 - (falls - grows) * at_zero, 0.0))
        s = xp.clip(at_zero / xp.maximum(half + wide, _TINY), 0.0, delta)
        met = bottom + _as_student(falls * (delta - s) ** 2, degrees, xp)
        value = xp.where(at_zero <= 0, _as_student(ruled_out, degrees, xp), met)
        found.append(value.min(axis=-1))
    return xp.stack(found).max(axis=0) - np.log(len(_EFFECTS))


def _as_student(value: Any, degrees: Any, xp: Any) -> Any:
    """Correct for phi estimated on few looks: nu / 2 log(1 + 2 x / nu) for x > 0, Student's t instead of a normal."""
    return xp.where(value > 0, 0.5 * degrees * xp.log1p(2 * xp.maximum(value, 0.0) / degrees), value)


def kinds(trends: int, lags: int, others: int) -> tuple[str, ...]:
    """The columns with unknown coefficients: level, trend, innovations of y and the parameter, other parameters."""
    return ("level", "trend")[:trends] + ("lag",) * lags + ("parameter",) * (lags + others)


def log_marginal(sums: Nuisance, phi: Any, base: Any, xp: Any = np) -> Any:
    """[...] log q: the likelihood, averaged over guesses and over Gaussian beta and B of several sizes.

    The level is drawn around that of the first look with the variance of its mean, the rest around 0.
    """
    p = len(sums.gram)
    side = xp.concatenate([sums.y, sums.ty[None]])
    whole = [[sums.gram[i, j] for j in range(p)] + [sums.t[i]] for i in range(p)]
    whole.append([*sums.t, xp.broadcast_to(sums.tt, sums.ty.shape)])
    parts = []
    for trend in _TRENDS if "trend" in sums.kinds else _TRENDS[:1]:
        for effect in _EFFECTS[::2]:
            own = xp.maximum(sums.unit, _TINY) / effect
            values = {"level": 1.0, "trend": trend, "lag": _LAG * phi, "parameter": own}
            precision = [values[kind] for kind in (*sums.kinds, "parameter")]
            both = [[one + precision[i] if i == j else one for j, one in enumerate(row)] for i, row in enumerate(whole)]
            solved, size = eliminate(_Nested(both), side[:, None], xp)
            size = size - sum(xp.log(one) for one in precision)
            squares = sums.yy - (side * solved[:, 0]).sum(0)
            parts.append(base - 0.5 * size - squares / (2 * phi))
    values = xp.concatenate(parts, -1)
    top = values.max(axis=-1)
    return top + xp.log(xp.exp(values - top[..., None]).mean(axis=-1))


class _Nested:
    """A matrix of unstacked arrays, read entry by entry."""

    def __init__(self, rows: list[list[Any]]):
        self.rows, self.shape = rows, (len(rows), len(rows))

    def __getitem__(self, place: tuple[int, int]) -> Any:
        return self.rows[place[0]][place[1]]

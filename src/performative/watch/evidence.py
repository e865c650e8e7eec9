r"""Evidence for a reaction that may be inspected after every batch: an e-process against drift alone.

    y_t = a + b t + m_t + B theta_t + e_t,      Var(e_t) = phi / count_t,      m one of `guesses`;      H0: B = 0

Each guess g of the drift gives innovations (a Kalman filter, the same for y, for 1 and t, and for theta), in which H0
is y~ = x~ beta + noise, independent of the past, whatever rule chose theta_t from the data before it. x contains 1 and
t, the other parameters, and the last innovations of y and theta if drift is a walk or smooth, to absorb the error of a
guess. For each (g, beta)

    M(g, beta) = 0.9 Int exp(sum_s lambda z_s r_s - lambda^2 z_s^2 phi / 2) dN(lambda) + 0.1 q(y) / p(y | g, beta, B=0)

is a supermartingale that starts at 1: r = y~ - x~ beta; z_s is the residual of theta_s given 1 and t, by a regression
on models up to s only; q is the marginal likelihood of all guesses with Gaussian beta and B. The first term detects
the reaction, the second excludes levels, trends and drifts that the data rule out. The evidence is the infimum over the
unknowns,

    E = inf_{g, beta} M(g, beta),      P(E ever reaches 1/alpha | no reaction) <= alpha                        (Ville)

so a level or a trend costs nothing unless models move along with it. Universal inference (Wasserman, Ramdas and
Balakrishnan 2020) is the second term alone; Robbins' normal mixture is the first.

Assumes that a batch's mean is close to normal given the past (or sub-Gaussian with that variance), that rows of a batch
are independent, and that drift is one of the guesses. phi is estimated from the residuals, with Student's form of the
evidence: valid in the limit of many looks, like asymptotic confidence sequences (Waudby-Smith et al. 2024), and in
simulations also for few; there is no evidence before 7 looks plus one per column of x. `randomized` is exact without
any of these assumptions.
"""

from typing import Any, NamedTuple

import numpy as np

from performative.watch.crossing import RIDGE, Nuisance, kinds, least_evidence
from performative.watch.elimination import solve
from performative.watch.guesses import LAGS, Guesses, guesses, moves, start, trends

# Looks after the first, beyond one per column of x, before there is any evidence.
FIRST = 6
# If less than this share of a parameter's movement remains after drift and other parameters, it counts as fixed.
_STILL = 1e-6


class Sums(NamedTuple):
    """The whole memory of a series, whatever its length. Axes: q columns, d parameters, G guesses.

    Leading axes (...), if any, are independent series that share times and counts. A letter is a column in innovations:
    x the p columns with unknown coefficients (1, t, the other parameters, and the last innovations of y and of
    the parameter), t of theta, y of the data, z of the weights; two letters are the sum of products.
    """

    looks: Any
    log_variance: Any  # [G]
    covariance: Any  # [2, 2, G] of the drift's memory
    state_x: Any  # [2, k, G] of 1 and t
    state_t: Any  # [2, ..., d, G]
    state_y: Any  # [2, ..., q, G]
    last_t: Any  # [lags, ..., d, G] innovations
    last_y: Any  # [lags, ..., q, G]
    xx: Any  # [p, p, ..., d, q, G]
    xt: Any  # [p, ..., d, q, G]
    xy: Any  # [p, ..., d, q, G]
    xz: Any  # [p, ..., d, q, G]
    tt: Any  # [..., d, 1, G]
    ty: Any  # [..., d, q, G]
    yy: Any  # [..., 1, q, G]
    zz: Any  # [..., d, q, G]
    zt: Any  # [..., d, q, G]
    zy: Any  # [..., d, q, G]
    unit: Any  # [..., d] the square of the first move of each parameter, 0 before


def begin(drift: str, columns: int, parameters: int, lead: tuple[int, ...] = ()) -> Sums:
    """Empty sums."""
    told, k, lags, q, d = guesses(drift), trends(drift), LAGS[drift], columns, parameters
    G, p = len(told.level), k + 2 * lags + d - 1
    each = (*lead, d, q, G)
    shapes: dict[str, tuple[int, ...]] = {
        "state_x": (2, k, G), "state_t": (2, *lead, d, G), "state_y": (2, *lead, q, G), "last_t": (lags, *lead, d, G),
        "last_y": (lags, *lead, q, G), "xx": (p, p, *each), "xt": (p, *each), "xy": (p, *each), "xz": (p, *each),
        "tt": (*lead, d, 1, G), "ty": each, "yy": (*lead, 1, q, G), "zz": each, "zt": each, "zy": each,
        "unit": (*lead, d),
    }  # fmt: skip
    zeros = {name: np.zeros(shape) for name, shape in shapes.items()}
    return Sums(looks=0.0, log_variance=np.zeros(G), covariance=start(told), **zeros)


def look(sums: Sums, told: Guesses, y: Any, theta: Any, noise: Any, time: Any, gap: float, xp: Any = np) -> Sums:
    """Update the sums by one look.

    Args:
        y: [..., q] means minus those of the first look; theta: [..., d] the model minus the first
        noise: count of the first look / count of this one
        time: looks since the first, 0 there; gap: looks since the last one, 0 at the first
    """
    first = gap == 0
    step, new = moves(told, gap)
    covariance = sums.covariance
    if not first:
        covariance = xp.einsum("ijg,jkg,lkg->ilg", step, covariance, step) + new
    variance = covariance[0, 0] + noise
    gain, root = covariance[0] / variance, xp.sqrt(variance)
    known = xp.stack([xp.ones_like(time), time])[: sums.state_x.shape[1]]
    filtered = [
        _innovation(value, state, step, gain, root, xp)
        for value, state in ((known, sums.state_x), (theta, sums.state_t), (y, sums.state_y))
    ]
    (known, state_x), (t, state_t), (y, state_y) = filtered
    sums = sums._replace(
        covariance=covariance - gain[:, None] * gain * variance, state_x=state_x, state_t=state_t, state_y=state_y
    )
    if first:  # its information about the level is the prior of q
        return sums
    lags = len(sums.last_y)
    last_t, last_y = (xp.concatenate([a[None], b])[:lags] for a, b in ((t, sums.last_t), (y, sums.last_y)))
    d = t.shape[-2]
    others = [t[..., [(i + shift) % d for i in range(d)], None, :] for shift in range(1, d)]
    t, y = t[..., :, None, :], y[..., None, :, :]
    columns = (*known, *sums.last_y[..., None, :, :], *sums.last_t[..., :, None, :], *others)
    x = xp.stack([xp.broadcast_to(one, sums.zz.shape) for one in columns])
    xx, xt = sums.xx + x[:, None] * x, sums.xt + x * t
    slope = solve(_ridged(xx), xt[:, None], xp)[:, 0]
    z = t - (x * slope).sum(0)
    return sums._replace(
        looks=sums.looks + 1,
        log_variance=sums.log_variance + xp.log(variance),
        last_t=last_t,
        last_y=last_y,
        xx=xx,
        xt=xt,
        xy=sums.xy + x * y,
        xz=sums.xz + x * z,
        tt=sums.tt + t**2,
        ty=sums.ty + t * y,
        yy=sums.yy + y**2,
        zz=sums.zz + z**2,
        zt=sums.zt + z * t,
        zy=sums.zy + z * y,
        unit=xp.where(sums.unit > 0, sums.unit, theta**2),
    )


def _innovation(value: Any, state: Any, step: Any, gain: Any, root: Any, xp: Any) -> tuple[Any, Any]:
    """The innovation of a column, in standard errors, and the updated state of the filter."""
    level, other = (step[i, 0] * state[0] + step[i, 1] * state[1] for i in (0, 1))
    new = value[..., None] - level
    return new / root, xp.stack([level + gain[0] * new, other + gain[1] * new])


def _ridged(gram: Any) -> Any:
    p = gram.shape[0]
    return gram + RIDGE * np.eye(p).reshape(p, p, *(1,) * (gram.ndim - 2))


def log_evidence(sums: Sums, strength: Any = 0.0, xp: Any = np) -> Any:
    """[..., d, q] log E of each parameter and column against the null that its strength is the given one.

    At 0 this is the null that the column does not react to this parameter, however it reacts to the others.
    """
    p = len(sums.xx)
    if xp is np and sums.looks < FIRST + p:
        return np.full(sums.ty.shape[:-1], -np.inf)
    b = xp.asarray(strength)[..., None]
    least = least_evidence(
        Nuisance(
            looks=sums.looks, log_variance=sums.log_variance, unit=sums.unit[..., :, None, None], gram=sums.xx,
            kinds=kinds(sums.state_x.shape[1], len(sums.last_y), sums.unit.shape[-1] - 1),
            y=sums.xy - b * sums.xt, z=sums.xz, t=sums.xt, tt=sums.tt, zz=sums.zz,
            yy=sums.yy - 2 * b * sums.ty + b**2 * sums.tt, ty=sums.ty - b * sums.tt, zy=sums.zy - b * sums.zt,
        ),
        xp,
    )  # fmt: skip
    return xp.where(sums.looks >= FIRST + p, least, -np.inf)


def estimate(sums: Sums) -> tuple[np.ndarray, np.ndarray]:
    """[d, q] least squares of the strength under the best-fitting guess, and its standard error.

    Both are NaN if the parameter did not move apart from the drift.
    """
    beside = solve(_ridged(sums.xx), np.stack([sums.xy, sums.xt], 1))
    unexplained = sums.yy - (sums.xy * beside[:, 0]).sum(0)
    left = sums.tt - (sums.xt * beside[:, 1]).sum(0)
    fit = sums.ty - (sums.xt * beside[:, 0]).sum(0)
    still = left <= _STILL * np.maximum(sums.tt, 1e-300)
    left = np.where(still, 1.0, left)
    phi = np.maximum(unexplained - fit**2 / left, 1e-300) / max(sums.looks - len(sums.xx) - 1, 1)
    best = (-sums.looks * np.log(phi) - sums.log_variance).argmax(axis=-1)[..., None]

    def at(values: np.ndarray) -> np.ndarray:
        return np.take_along_axis(np.broadcast_to(values, phi.shape), best, axis=-1)[..., 0]

    unknown = at(still) | (sums.looks < len(sums.xx) + 2)
    return np.where(unknown, np.nan, at(fit / left)), np.where(unknown, np.nan, np.sqrt(at(phi / left)))

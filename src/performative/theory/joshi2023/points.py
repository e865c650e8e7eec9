"""Where federated training settles if every client has grad F_i = slope_i x - mean_i: exactly, one parameter.

Gaussian data with the squared loss: slope_i = 1 - eps_i. Complements the rates of `heterogeneity` and `selection`. A
round, or a cycle, is affine: x -> factor x + level. It settles only if |factor| < 1.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from performative._base.arguments import Count, Positive, Values, checked
from performative._base.messages import coded
from performative.theory.gaussian import with_weights
from performative.theory.index import numbered
from performative.theory.joshi2023.heterogeneity import check_participants, participation_variance
from performative.types import as_array

# A factor this close to one counts as one: sums over clients carry roundoff.
_ROUNDING = 1e-12


@dataclasses.dataclass(frozen=True)
class Floor:
    """|grad F|^2 as t grows, exactly: point is where the mean settles, drift is |grad F|^2 there.

    Attributes:
        noise, participation: their parts of the variance, to first order in eta
    """

    point: float
    drift: float
    noise: float
    participation: float


@numbered("joshi2023", "exact: FedAvg", "where FedAvg settles, and its variance for small steps")
@checked
def quadratic_floor(
    mean: Values, slope: Values, eta: Positive, local_steps: Count, sigma: float = 0.0,
    participants: Count | None = None,
) -> Floor:  # fmt: skip
    """`fedavg` exactly: grad F_i = slope_i x - mean_i with one parameter (Gaussian data: slope_i = 1 - eps_i).

        point: sum R_i (slope_i x - mean_i) = 0,   R_i = (1 - (1 - eta slope_i)^tau) / slope_i
        noise -> lambda eta sigma^2 / (2 K),   participation -> lambda eta tau w mean g_i^2 / 2,   lambda = mean slope_i

    with g_i the gradients at the optimum. The drift is exact, and (eta (tau - 1) / 2)^2 (mean slope_i g_i)^2 for small
    eta; the other two are limits as eta -> 0. So the bound's constants 4, 8 and 8 are 1/2, 1/2 and at most 1/4 here.
    Raises if rounds diverge from the point, or if lambda <= 0, when small steps diverge, too.
    """
    m, lam, p = with_weights(None, mean=mean, slope=slope)
    K = check_participants(len(m), participants)
    R = client_work(lam, eta, local_steps)
    point = rest(1.0 - float(p @ (R * lam)), float(p @ (R * m)), "a round")
    center = float(lam.mean())
    if not center > 0:
        text = f"quadratic_floor: the mean slope is {center:.6g}, so small steps diverge from the optimum."
        raise ValueError(coded("diverging-iteration", text))
    g = lam * (m.mean() / center) - m
    w = participation_variance(len(m), K)
    return Floor(
        point, (center * point - float(m.mean())) ** 2, center * eta * sigma**2 / (2.0 * K),
        center * eta * local_steps * w * float(np.mean(g**2)) / 2.0,
    )  # fmt: skip


@numbered("joshi2023", "exact: cyclic", "where a cycle of groups settles")
@checked
def cycle_point(
    mean: Values, slope: Values, groups: Any, eta: Positive, local_steps: Count = 1, weights: Values | None = None, *,
    attracting: bool = True,
) -> float:  # fmt: skip
    """The fixed point of a whole cycle of groups, as broadcast to the first group: grad F_i = slope_i x - mean_i.

    A round of group g is affine, x -> a_g x + b_g, and the cycle is their composition. Exact, one parameter. Raises if
    the cycle multiplies an error by 1 or more; `attracting=False` then returns the point that it diverges from.
    """
    m, lam, p = with_weights(weights, mean=mean, slope=slope)
    keep, level = 1.0, 0.0
    for ids in _read_groups(groups, p):
        share, work = p[ids] / p[ids].sum(), client_work(lam[ids], eta, local_steps)
        a, b = 1.0 - share @ (work * lam[ids]), share @ (work * m[ids])
        keep, level = a * keep, a * level + b
    return rest(float(keep), float(level), "a cycle", attracting)


def _read_groups(groups: Any, p: np.ndarray) -> list[np.ndarray]:
    """Lists of client numbers, each group with some weight."""
    listed = isinstance(groups, Sequence) or (isinstance(groups, np.ndarray) and groups.ndim > 0)
    rows = [as_array(ids) for ids in groups] if listed else []
    for ids in rows:
        whole = ids.ndim == 1 and ids.size and ids.dtype.kind in "iu"
        if not whole or ids.min() < 0 or ids.max() >= len(p) or not p[ids].sum() > 0:
            raise ValueError(f"groups must list clients 0..{len(p) - 1}, each group with some weight; got {groups!r}.")
    if not rows:
        raise ValueError(f"groups must be a list of lists of clients 0..{len(p) - 1}; got {groups!r}.")
    return rows


@numbered("joshi2023", "exact: unequal work", "where FedAvg and FedNova settle")
@checked
def settled_point(
    mean: Values, slope: Values, weights: Values, eta: Positive, local_steps: Values, nova: bool = False, *,
    attracting: bool = True,
) -> float:  # fmt: skip
    """Where FedAvg, or FedNova, settles under unequal work: grad F_i = slope_i x - mean_i, no noise.

        sum_i c_i R_i (slope_i x - mean_i) = 0,   R_i = (1 - (1 - eta slope_i)^tau_i) / slope_i

    c_i = p_i for FedAvg and tau_eff p_i / tau_i for FedNova, tau_eff = sum_i p_i tau_i. As eta -> 0 that is the
    minimizer of sum w_i F_i, with `objective_weights` or p. Data that react: slope_i = 1 - eps_i. A round multiplies an
    error by 1 - sum_i c_i R_i slope_i. If that is 1 or more in absolute value, nothing settles and it raises;
    `attracting=False` returns the point that rounds diverge from.
    """
    m, lam, p = with_weights(weights, mean=mean, slope=slope)
    tau = _steps(local_steps, len(m))
    c = (float(p @ tau) * p / tau if nova else p) * client_work(lam, eta, tau)
    return rest(1.0 - float(c @ lam), float(c @ m), "a round", attracting)


def rest(factor: float, level: float, what: str, attracting: bool = True) -> float:
    """The fixed point of x -> factor x + level; raises if there is none, or if `attracting` and it repels."""
    if abs(1.0 - factor) <= _ROUNDING:
        text = f"{what} multiplies an error by 1: there is no fixed point, or every point is one. Change slope or eta."
        raise ValueError(coded("no-fixed-point", text))
    point = level / (1.0 - factor)
    if attracting and not abs(factor) < 1.0 - _ROUNDING:
        text = (
            f"{what} multiplies an error by {factor:.6g}, so training does not settle"
            f"{' but oscillates' if factor < 0 else ''}. Use a smaller step if the mean slope is positive; "
            f"attracting=False returns the point that it diverges from ({point:.6g})."
        )
        raise ValueError(coded("diverging-iteration", text))
    return point


def client_work(slope: np.ndarray, eta: float, steps: Any) -> np.ndarray:
    """R_i = sum_k eta (1 - eta slope_i)^k over tau_i steps: how far a client moves per unit of its gradient."""
    steps = np.asarray(steps, np.float64)
    # (1 - (1 - u)^tau) / u loses precision for small u; 1 - u may be negative if a step overshoots.
    u = eta * slope
    small = np.abs(u) < 1e-3
    slow = -np.expm1(steps * np.log1p(-np.where(small, u, 0.5)))
    fast = 1.0 - (1.0 - np.where(small, 0.5, u)) ** steps
    return np.where(u == 0, eta * steps, np.where(small, slow, fast) / np.where(u == 0, 1.0, slope))


def _steps(local_steps: Any, clients: int) -> np.ndarray:
    tau = np.asarray(local_steps, np.float64)
    if tau.shape not in ((), (1,), (clients,)) or not np.all(np.isfinite(tau) & (tau >= 1) & (tau == np.rint(tau))):
        raise ValueError(f"local_steps must be whole numbers tau_i >= 1, one or one per client; got {local_steps}.")
    return np.broadcast_to(tau, clients)

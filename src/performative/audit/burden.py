"""What qualified people must pay to be accepted."""

import dataclasses
import math
from typing import Any

import numpy as np
import scipy.stats

from performative.findings import Plain

COSTS = {
    "quadratic": "|move|^2 / (2 strength), the cost in the utility of a best response",
    "distance": "|move| / strength",
}


@dataclasses.dataclass(frozen=True)
class Burden(Plain):
    """The mean minimal cost of acceptance among the qualified people of a group, with a normal interval.

    Attributes:
        people: How many qualified people the group has.
        already: How many of them pay nothing.
        unreachable: How many would not be accepted after any move; if there are any, the value is infinite.
        paid: The mean cost that they did pay, NaN if unknown.
    """

    group: str
    people: int
    value: float
    low: float
    high: float
    already: int
    unreachable: int
    paid: float = math.nan


def least_cost(
    x: np.ndarray,
    weights: np.ndarray,
    offset: float,
    threshold: float,
    accept: str = "above",
    *,
    movable: np.ndarray | None = None,
    scale: np.ndarray | None = None,
    strength: Any = 1.0,
    cost: str = "quadratic",
) -> np.ndarray:
    """The minimal cost for each of n people of reaching the accepted side of a linear model.

        gap = max(0, +-(threshold - w.x - offset)),    |move| = gap / |scale * w| over the movable features
        cost = |move|^2 / (2 strength)  or  |move| / strength

    `move` is in units of `scale` [k] (1 by default); `strength` is a number or one per person. The shortest move is
    along scale * w. Zero for people already accepted, infinite if no movable feature has a weight or strength is 0.
    """
    if cost not in COSTS:
        raise ValueError(f"cost must be one of {', '.join(map(repr, COSTS))}; got {cost!r}.")
    strength = np.broadcast_to(np.asarray(strength, np.float64), (len(x),))
    if np.any(strength < 0):
        raise ValueError(f"strength must not be negative, or a cost would be a gain; got {strength.min():g}.")
    score = np.asarray(x, np.float64) @ weights + offset
    gap = np.maximum(0.0, threshold - score if accept == "above" else score - threshold)
    can = np.ones(len(weights), bool) if movable is None else np.asarray(movable, bool)
    units = np.ones(len(weights)) if scale is None else scale
    reach = float(np.linalg.norm((weights * units)[can]))
    with np.errstate(divide="ignore", invalid="ignore"):
        move = gap / reach
        price = move**2 / (2 * strength) if cost == "quadratic" else move / strength
    return np.where(gap == 0, 0.0, np.where((reach > 0) & (strength > 0), price, np.inf))


def social_burden(
    cost: np.ndarray,
    qualified: np.ndarray,
    group: np.ndarray,
    paid: np.ndarray | None = None,
    level: float = 0.95,
) -> tuple[Burden, ...]:
    """B_g = E[ min { c(x, x') : x' accepted } | qualified, group g ]; the differences are the social gap.

    `cost` [n] is each person's minimal cost, `qualified` 0, 1 or NaN (excluded). Milli, Miller, Dragan and Hardt 2019.
    Differs from the paper: any cost on features is allowed, not only costs on the likelihood.
    """
    z = float(scipy.stats.norm.ppf(0.5 + level / 2))
    out = []
    for name in np.unique(group.astype(str)):
        mine = (group.astype(str) == name) & (qualified == 1)
        values = cost[mine]
        n, never = len(values), int(np.sum(np.isinf(values)))
        value = float(values.mean()) if n else math.nan
        half = math.nan if n < 2 or never else z * float(values.std(ddof=1)) / math.sqrt(n)
        out.append(
            Burden(
                group=str(name),
                people=n,
                value=value,
                low=math.nan if math.isnan(half) else max(0.0, value - half),
                high=value + half,
                already=int(np.sum(values == 0)),
                unreachable=never,
                paid=math.nan if paid is None or not n else float(paid[mine].mean()),
            )
        )
    return tuple(out)

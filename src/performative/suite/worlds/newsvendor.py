"""Orders that create demand: the loss has a kink, so risks are given in closed form."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float
from scipy import stats

from performative._base.checks import check_number, check_rule
from performative.losses import AbstractLoss
from performative.populations import Gaussian
from performative.problem import Problem
from performative.suite.budget import Budget
from performative.suite.registry import register
from performative.suite.setting import Setting
from performative.types import Numbers, Sample, Theta, number


class NewsvendorLoss(AbstractLoss):
    """The cost of an order theta if the demand is z.

    under max(z - theta, 0) + over max(theta - z, 0) + cost theta
    """

    under: Numbers = number()
    over: Numbers = number()
    cost: Numbers = number()

    def __check_init__(self) -> None:
        values = {"under": self.under, "over": self.over, "cost": self.cost}
        check_number("NewsvendorLoss", **values)
        check_rule("NewsvendorLoss", "must not be negative", **values)

    def convex(self) -> bool:
        return True

    def __call__(self, theta: Theta, z: Sample) -> Float[Array, ""]:
        short = jnp.maximum(z - theta, 0)
        return self.under * short + self.over * (short + theta - z) + self.cost * theta


def exact_risk(
    under: float, over: float, cost: float, level: np.ndarray, slope: np.ndarray, scale: float, weights: np.ndarray
) -> Callable[[Any, Any], Any]:
    """f(theta; deployed) over demands N(level_i + slope_i deployed, scale^2), in closed form."""

    def risk(theta: Array, deployed: Array) -> Array:
        k = (theta - level - slope * deployed) / scale
        short = norm.pdf(k) - k * norm.sf(k)  # E max(xi - k, 0)
        return jnp.sum(weights * (under * scale * short + over * scale * (short + k))) + cost * theta

    return risk


@register("newsvendor-v1", family="newsvendor")
def newsvendor() -> Setting:
    """A shop whose full shelves attract customers: demand is N(20 + 0.5 order, 16); a missing unit costs 4, a leftover
    one 1, each unit ordered 1. Retraining settles at an order that takes the demand as given; the optimal order is
    smaller, since each unit attracts half a customer who must be served too (closed forms by the normal quantile)."""
    a, b, s, under, over, cost = 20.0, 0.5, 4.0, 4.0, 1.0, 1.0
    stable, optimal = ((a + s * stats.norm.ppf((under - c) / (under + over))) / (1 - b) for c in (cost, cost / (1 - b)))
    problem = Problem(NewsvendorLoss(under, over, cost), Gaussian(np.array([a]), b, s))
    risk = exact_risk(under, over, cost, np.array([a]), np.array([b]), s, np.ones(1))
    return Setting(
        problem, Budget(50, 20_000, 50), rows=200, start=10.0, exact=risk, stable=stable, optimal=optimal,
        constants={"sensitivity": b, "strong_convexity": 0.0, "noise": s}, advice="pf.two_point",
    )  # fmt: skip


@register("newsvendor-federation-v1", family="newsvendor")
def federation() -> Setting:
    """Eight shops that place the same order: demand of shop i is N(a_i + b_i order, 16), b_i from 0 to 0.8, so full
    shelves attract customers to some shops only. Costs as in newsvendor-v1; points are roots of the exact gradient."""
    clients, s, under, over, cost = 8, 4.0, 4.0, 1.0, 1.0
    level, slope = np.linspace(24.0, 10.0, clients), np.linspace(0.0, 0.8, clients)
    weights = np.full(clients, 1.0 / clients)
    problem = Problem(NewsvendorLoss(under, over, cost), Gaussian(level, slope, s))
    return Setting(
        problem, Budget(50, 40_000, 50), rows=50, start=45.0,
        exact=exact_risk(under, over, cost, level, slope, s, weights),
        constants={"sensitivity": float(slope.mean()), "strong_convexity": 0.0, "noise": s}, advice="pf.two_point",
    )  # fmt: skip

"""Demand that reacts to prices."""

from typing import Any

import numpy as np

from performative import losses
from performative.populations.base import new_people
from performative.populations.gaussian import AbstractLocation, follow_slope
from performative.populations.linear import divide, is_positive
from performative.types import ArrayLike, Loss, Numbers, Theta, per_client


class Pricing(AbstractLocation):
    """Demand that falls as prices rise.

        Z_i ~ N(demand_i - sensitivity_i * theta, scale_i^2)

    `demand` is [N] for one price, [N, d] for d of them; `sensitivity` a number, [N], [N, d] or [N, d, d] (substitute
    goods). With `negative_revenue`, m and G their averages: theta_PS = G^-1 m, the root of the decoupled gradient;
    theta_PO solves (G + G^T) theta = m, if G + G^T is positive definite: half of theta_PS if G is symmetric. The
    decoupled risk is linear in theta, so retraining to its minimum needs a domain. Zheng et al. 2024, Section 6,
    pricing with dynamic demands.
    """

    references = ("zheng2024profl",)
    equal_rows, translations = new_people, follow_slope
    level_field = "demand"

    demand: Numbers = per_client()
    sensitivity: Numbers = per_client()
    scale: Numbers = per_client()

    @property
    def level(self) -> Any:
        return self.demand

    @property
    def slope(self) -> Any:
        return -self.sensitivity

    def stable_point(self, loss: Loss, weights: ArrayLike) -> Theta | None:
        if loss is not losses.negative_revenue:
            return super().stable_point(loss, weights)
        m, slope = self.averages(weights)
        return divide(m, -slope)

    def optimal_point(self, loss: Loss, weights: ArrayLike) -> Theta | None:
        if loss is not losses.negative_revenue:
            return super().optimal_point(loss, weights)
        m, slope = self.averages(weights)
        both = -(slope + np.transpose(slope))
        return divide(m, both) if is_positive(both) else None

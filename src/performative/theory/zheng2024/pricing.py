"""Descent along a noisy performative gradient in pricing, exactly.

    L_i(theta) = -theta (m_i - gamma_i theta),   grad L_i = 2 gamma_i theta - m_i
    theta_i <- theta_i - eta (grad L_i(theta_i) + b + xi),   E xi = 0, E xi^2 = v,   averaged every R steps

Zheng et al. 2024, Section 6 (pricing with dynamic demands, one price): for comparison with Theorem 5.10.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from performative._base.arguments import Count, Positive, Size, Values, check_fields, checked
from performative.theory.gaussian import with_weights
from performative.theory.zheng2024.descent import PerformativeAssumptions, location_smoothness


@dataclasses.dataclass(frozen=True, eq=False)
class PricingDescent:
    """demand: m_i; sensitivity: gamma_i > 0; weights: alpha_i, None: equal."""

    demand: Values
    sensitivity: Values
    weights: Values | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        m, gamma, alpha = with_weights(self.weights, demand=self.demand, sensitivity=self.sensitivity)
        if not np.all(gamma > 0):
            raise ValueError(
                f"sensitivity must be positive, otherwise the risk has no minimum; got {self.sensitivity}."
            )
        for name, value in (("demand", m), ("sensitivity", gamma), ("weights", alpha)):
            object.__setattr__(self, name, value)

    @property
    def gamma_bar(self) -> float:
        """sum alpha_i gamma_i."""
        return float(self.weights @ self.sensitivity)

    @property
    def optimum(self) -> float:
        """theta_PO = m_bar / (2 gamma_bar)."""
        return float(self.weights @ self.demand) / (2.0 * self.gamma_bar)

    @checked
    def gaps(
        self, eta: Positive, steps: Count, start: float, *, local_steps: Count = 1, bias: float = 0.0,
        variance: Size = 0.0,
    ) -> np.ndarray:  # fmt: skip
        """E L(theta_bar_t) - L(theta_PO) = gamma_bar E (theta_bar_t - theta_PO)^2 at t = 0, ..., T.

        It grows without bound, to inf, if eta gamma_bar >= 1.
        """
        alpha, rate = np.asarray(self.weights), 1.0 - 2.0 * eta * self.sensitivity
        mean, spread, found = float(start), 0.0, [(start - self.optimum) ** 2]
        A, B, S = np.ones_like(rate), np.zeros_like(rate), np.zeros_like(rate)
        for t in range(1, steps + 1):
            A, B, S = rate * A, rate * B + eta * (self.demand - bias), rate**2 * S + eta**2 * variance
            kept, miss = float(alpha @ A), float(alpha @ A) * mean + float(alpha @ B) - self.optimum
            # Products overflow to inf, whereas powers of Python floats raise.
            noise = kept * kept * spread + float(alpha**2 @ S)
            now = miss + self.optimum
            found.append(miss * miss + noise)
            if t % local_steps == 0:
                mean, spread = now, noise
                A, B, S = np.ones_like(rate), np.zeros_like(rate), np.zeros_like(rate)
        with np.errstate(over="ignore"):
            return self.gamma_bar * np.asarray(found)

    def limit(self, eta: float, bias: float = 0.0, variance: float = 0.0) -> float:
        """The gap as t grows, R = 1: b^2 / (4 gamma_bar) + eta v' / (4 (1 - gamma_bar eta)), v' = v sum alpha_i^2."""
        if not 0 < eta * self.gamma_bar < 1:
            return math.inf
        v = variance * float(np.sum(np.square(np.asarray(self.weights))))
        return bias**2 / (4.0 * self.gamma_bar) + eta * v / (4.0 * (1.0 - self.gamma_bar * eta))

    def assumptions(self, start: float, reach: float, bias: float = 0.0, variance: float = 0.0) -> Any:
        """The constants of Theorem 5.10, for models within `reach` of theta_PO.

        rho = 2 gamma_bar, Lambda_i = 2 gamma_i, F = max gamma_i, M = 0. G is a root mean square. L = 1 in z.
        """
        ends = self.optimum + reach * np.asarray([[-1.0], [1.0]])
        steepest = float(np.max(np.abs(2.0 * self.sensitivity * ends - self.demand)))
        return PerformativeAssumptions(
            L=1.0, gamma=self.sensitivity, rho=2.0 * self.gamma_bar, gap=self.gamma_bar * (start - self.optimum) ** 2,
            smoothness=location_smoothness(self.sensitivity, cross=1.0),
            G=math.sqrt((steepest + abs(bias)) ** 2 + variance), F=float(self.sensitivity.max()), M=0.0,
            weights=self.weights,
        )  # fmt: skip

"""Is there a stable point, does retraining find it, and how far is it from the optimum?

Jin et al. 2024, Propositions 2.8 and 2.9, with the exact answers for the Gaussian problem.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from performative._base.arguments import Values, checked
from performative.theory.bound import Bound
from performative.theory.gaussian import read_clients
from performative.theory.index import numbered
from performative.theory.jin2024.assumptions import Assumptions, infinite


@dataclasses.dataclass(frozen=True)
class Contraction:
    """What Proposition 2.8 says about retraining, theta -> Phi(theta) = argmin f(. ; theta).

    Attributes:
        factor: eps_bar L / mu, which |Phi(u) - Phi(v)| / |u - v| cannot exceed
        unmet: if there are any, nothing is proved: a stable point may still exist and attract
    """

    factor: float
    distance: float
    unmet: tuple[str, ...] = ()
    name: str = "2.8"

    @property
    def holds(self) -> bool:
        """Whether every precondition is met."""
        return not self.unmet

    def bound(self, deployments: Any) -> Any:
        """The bound on |Phi^n(theta_0) - theta_PS|^2 after n deployments, factor^(2n) |theta_0 - theta_PS|^2."""
        if self.unmet:
            return np.full(np.shape(deployments), math.inf) if np.ndim(deployments) else math.inf
        return self.factor ** (2.0 * deployments) * self.distance


@dataclasses.dataclass(frozen=True)
class GaussianPoints:
    """The exact points of the scalar Gaussian problem with the squared loss.

    Attributes:
        multiplier: sum_i p_i eps_i, the slope of Phi; retraining converges if it lies in (-1, 1)
        stable: theta_PS, NaN if there is none or every theta is one
        optimal: theta_PO, NaN if the performative risk is flat
    """

    multiplier: float
    stable: float
    optimal: float
    verdict: str

    @property
    def distance(self) -> float:
        """|theta_PS - theta_PO|."""
        return abs(self.stable - self.optimal)


@numbered("jin2024", "Proposition 2.8", "retraining contracts by eps_bar L / mu")
@checked
def proposition_2_8(assumptions: Assumptions) -> Contraction:
    """Proposition 2.8: eps_bar < mu / L makes retraining a contraction, with one stable point.

        |Phi(u) - Phi(v)| <= (eps_bar L / mu) |u - v|

    Sufficient, not necessary. Differs from the paper, which calls it necessary for theta_PS to exist, and where
    "any sequence will diverge" at eps_bar >= mu / L. In its own instance with eps_bar > 1 a stable point exists
    and the sequence that starts there stays; see `gaussian_points`. The preprint's proof prints L / mu.
    """
    a = assumptions
    found = dataclasses.replace(a, delta=None).unmet()  # delta plays no role here
    found += infinite(a, (("distance", "start"),))
    factor = a.pull / a.mu if a.mu > 0 else math.inf
    return Contraction(factor, a.distance, found)


@numbered("jin2024", "Proposition 2.9", "distance of theta_PS and theta_PO")
@checked
def proposition_2_9(assumptions: Assumptions) -> Bound:
    """Proposition 2.9: |theta_PS - theta_PO| <= 2 Lz eps_bar / mu for every pair of such points.

    Needs a loss that is Lipschitz in z (at theta_PO is enough); the squared loss of the paper's own example is not.
    Says nothing about whether the points exist: eps_bar < mu / L is not required.
    """
    a = assumptions
    found = (() if a.mu > 0 else a.unmet()) + infinite(a, (("eps_max", "2.3"),))
    if a.Lz is None or not math.isfinite(a.Lz):
        found += ("Lz finite: the loss is not known to be Lipschitz in z; the squared loss is not",)
    if found or a.Lz is None:
        return Bound.nothing("gap", found)
    return Bound({"gap": 2.0 * a.Lz * a.eps_bar / a.mu})


@checked
def gaussian_points(mean: Values, sensitivity: Values, weights: Values | None = None) -> GaussianPoints:
    """theta_PS and theta_PO of Z_i ~ N(m_i + eps_i theta, .) with the squared loss, exactly.

        Phi(theta) = m_bar + eps_bar theta,   theta_PS = m_bar / (1 - eps_bar)
        theta_PO = sum_i p_i (1 - eps_i) m_i / sum_i p_i (1 - eps_i)^2

    eps_bar = sum_i p_i eps_i here keeps its signs. There is no stable point only at eps_bar = 1, m_bar != 0.
    """
    m, eps, _, p = read_clients(mean, sensitivity, 1.0, weights)
    slope, m_bar = float(p @ eps), float(p @ m)
    curve = float(p @ (1.0 - eps) ** 2)
    optimal = float(p @ ((1.0 - eps) * m)) / curve if curve > 1e-24 * float(p @ (1.0 + eps**2)) else math.nan
    # Sums over clients carry roundoff: a mean of 0 or a multiplier of 1 holds only up to it.
    rounding = 1e-12
    if abs(1.0 - slope) <= rounding:
        verdict = "no stable point" if abs(m_bar) > rounding * float(p @ np.abs(m)) else "every theta is stable"
        return GaussianPoints(slope, math.nan, optimal, verdict)
    kinds = ("attracts", "neither attracts nor repels", "repels")
    side = 1 if abs(abs(slope) - 1.0) <= rounding else 0 if abs(slope) < 1.0 else 2
    return GaussianPoints(slope, m_bar / (1.0 - slope), optimal, f"one stable point, which {kinds[side]}")

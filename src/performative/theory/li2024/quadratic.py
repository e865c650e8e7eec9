"""The instance behind the lower bound for clipped SGD, exactly.

    l(theta; z) = (theta + a z)^2 / 2,   Z = b B - beta theta,   B ~ Bernoulli(p),   grad l = (1 - a beta) theta + a b B

Li, Yemini, Wai 2024, Theorem 3.5 with Eq. (24) to (27) and Appendix E. One parameter; gradients are large for a
minority (share p) and small for the majority, and clipping mutes the minority.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from performative._base.arguments import NonNegative, Positive, check_fields, checked
from performative.theory.bound import broken
from performative.theory.index import numbered
from performative.theory.li2024.clipped import ClippedAssumptions
from performative.theory.li2024.dice import DiceAssumptions


@dataclasses.dataclass(frozen=True)
class ClippedQuadratic:
    """Eq. (24). p: share of large gradients, below 1/2; a, b > 0; beta: reaction, with a beta < 1.

    mu = 1, L = a in z (1 in theta), so mu~ = 1 - a beta. For a beta > 1 the fixed points repel and at a beta = 1 there
    are none, so the paper's "for any beta >= 0" (footnote 1) is wrong.
    """

    p: float
    a: Positive
    b: Positive
    beta: NonNegative

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 < self.p < 0.5:
            raise ValueError(f"p must lie in (0, 1/2); got {self.p}.")
        if not self.a * self.beta < 1:
            raise ValueError(f"beta must lie in [0, 1 / a) = [0, {1 / self.a:.6g}); got {self.beta}.")

    @property
    def mu_tilde(self) -> float:
        """1 - a beta."""
        return 1.0 - self.a * self.beta

    @property
    def stable(self) -> float:
        """theta_PS = -p a b / (1 - a beta). Differs from the paper: (27) omits b."""
        return -self.p * self.a * self.b / self.mu_tilde

    @checked
    def pcsgd_limit(self, clip: Positive) -> float:
        """theta_inf = -p c / ((1 - p)(1 - a beta)) if a b >= c / (1 - p), else theta_PS: the only fixed point.

        E clip_c(u + a b B) is non-decreasing in u = (1 - a beta) theta and has slope 1 - p or 1 at its root, so the
        root is unique. The paper's a b >= 2 c is sufficient, not necessary.
        """
        return -self.p * min(clip / (1.0 - self.p), self.a * self.b) / self.mu_tilde

    @numbered("li2024", "Theorem 3.5", "the bias that no step removes")
    def squared_bias(self, clip: Positive) -> float:
        """|theta_inf - theta_PS|^2 = p^2 max(0, a b - c / (1 - p))^2 / (1 - a beta)^2."""
        return (self.pcsgd_limit(clip) - self.stable) ** 2

    @checked
    def unmet(self, clip: Positive, radius: float | None = None) -> tuple[str, ...]:
        """Why Theorem 3.5 does not apply to this clip in X = [-radius, radius]: empty if it does."""
        ab, there, end = self.a * self.b, self.stable, math.inf if radius is None else radius
        return broken(
            (ab > clip / (1 - self.p), f"a b > c / (1 - p) = {clip / (1 - self.p):.4g}: a b is {ab:.4g}, so no bias"),
            (end >= abs(there), f"X must contain theta_PS = {there:.4g}: it is [-{end:.4g}, {end:.4g}]"),
        )

    @checked
    def radius(self, clip: Positive, printed: bool = False) -> float:
        """X = [-radius, radius] of (25), with max(a b, c). Printed with max(a, c), it can exclude theta_PS."""
        scale = max(self.a if printed else self.a * self.b, clip)
        return 2.0 * scale * self.p / self.mu_tilde

    @checked
    def excess(self, clip: Positive, radius: float) -> float:
        """sup over [-radius, radius] of E max(|grad l| - c, 0), for `pcsgd`; convex in theta, so at its right end."""
        u = self.mu_tilde * radius
        return (1 - self.p) * max(u - clip, 0.0) + self.p * max(u + self.a * self.b - clip, 0.0)

    @checked
    def memory_clip_needed(self, clip: Positive) -> float:
        """|E clip_C1(grad l)| at theta_PS: DiceSGD is unbiased if C2 is above it, and biased if below.

            |p min(C1, (1 - p) a b) - (1 - p) min(C1, p a b)| = max(0, min((1 - 2 p) C1, p ((1 - p) a b - C1)))

        At equality theta_PS is a fixed point, but the memory has no stationary distribution. C2 >= C1 always suffices.
        """
        p, ab = self.p, self.a * self.b
        return max(0.0, min((1 - 2 * p) * clip, p * ((1 - p) * ab - clip)))

    @checked
    def dice_limit(self, clip: Positive, memory_clip: NonNegative) -> float:
        """theta_PS, or -(C2 + p C1) / ((1 - p)(1 - a beta)) if C2 < memory_clip_needed."""
        if memory_clip >= self.memory_clip_needed(clip):
            return self.stable
        return -(memory_clip + self.p * clip) / ((1.0 - self.p) * self.mu_tilde)

    def memory_growth(self, clip: Positive, memory_clip: NonNegative) -> float:
        """Growth of the error memory per step at the limit: E grad l there, 0 if unbiased."""
        return self.mu_tilde * (self.dice_limit(clip, memory_clip) - self.stable)

    def assumptions(self, radius: float, start: float) -> ClippedAssumptions:
        """Theorem 3.4's constants in X = [-radius, radius]: G = (1 - a beta) radius + a b."""
        if radius < abs(self.stable):
            raise ValueError(f"radius must be at least |theta_PS| = {abs(self.stable):.6g}; got {radius}.")
        G = self.mu_tilde * radius + self.a * self.b
        return ClippedAssumptions(1.0, self.a, self.beta, G, (start - self.stable) ** 2)

    def dice_assumptions(self, start: float, M: float) -> DiceAssumptions:
        """Theorem 4.3's constants: E |grad l|^2 = p (1 - p) a^2 b^2 + (1 - a beta)^2 |theta - theta_PS|^2 exactly.

        M is not known in closed form. For a < 1 the theorem's L is 1, the constant in theta.
        """
        G = math.sqrt(self.p * (1 - self.p)) * self.a * self.b
        L = max(1.0, self.a)
        return DiceAssumptions(1.0, L, self.beta, G, self.mu_tilde, M, (start - self.stable) ** 2)

    @checked
    def mean_clipped(self, theta: Any, clip: Positive) -> Any:
        """E clip_c(grad l) under D(theta): PCSGD's mean direction."""
        u = self.mu_tilde * np.asarray(theta, np.float64)
        few = np.clip(u + self.a * self.b, -clip, clip)
        return self.p * few + (1 - self.p) * np.clip(u, -clip, clip)

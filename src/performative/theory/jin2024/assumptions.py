"""The assumptions of P-FedAvg's theorems as numbers, and in words if a problem violates them.

Jin et al. 2024 (the paper) and its 2023 preprint, Section 2.2.
"""

import dataclasses
import math

import numpy as np

from performative._base.arguments import Count, Finite, NonNegative, Positive, Size, Values, checked
from performative.theory.bound import AbstractAssumptions
from performative.theory.gaussian import read_clients


@dataclasses.dataclass(frozen=True)
class Assumptions(AbstractAssumptions):
    """The constants of a problem. An infinite one means that none is known; theorems then prove nothing.

    Attributes:
        mu: f(. ; theta) is mu-strongly convex (2.1)
        L: the loss is L-smooth in theta and z (2.2)
        sigma: E |grad l - grad f_i|^2 <= sigma^2 (1 + |theta - theta_PS|^2) (2.5)
        varsigma: |grad f - grad f_i|^2 <= varsigma^2 (1 + |theta - theta_PS|^2) (2.6)
        eps_bar, eps_max: mean and largest sensitivity of D_i in Wasserstein distance (2.3)
        distance: E |theta_0 - theta_PS|^2
        clients: N
        heaviest, lightest: N max_i p_i and N min_i p_i, 1 for equal weights
        delta: free parameter > 0 of mu_tilde = mu - (1 + delta) eps_bar L; None halves mu - eps_bar L
        G: E |grad l(theta_i; Z)|^2 <= G^2 at every model that a client visits (3); Appendix D only
        Lz: z -> l(theta_PO; z) is Lz-Lipschitz; Proposition 2.9 only
    """

    mu: NonNegative
    L: Size
    sigma: Size
    varsigma: Size
    eps_bar: Size
    eps_max: Size
    distance: Size
    clients: Count = 1
    heaviest: float = 1.0
    lightest: float = 1.0
    delta: Positive | None = None
    G: Size | None = None
    Lz: Size | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.L > 0:
            raise ValueError(f"L must be a positive number; got {self.L}.")
        if self.eps_bar > self.eps_max * (1 + 1e-12):
            raise ValueError(f"eps_bar must not exceed eps_max; got {self.eps_bar:g} > {self.eps_max:g}.")
        if not (self.heaviest >= 1 - 1e-9 and 0 <= self.lightest <= 1 + 1e-9):
            raise ValueError(
                "N max_i p_i >= 1 and 0 <= N min_i p_i <= 1 for any weights; got "
                f"heaviest={self.heaviest}, lightest={self.lightest}."
            )

    @property
    def pull(self) -> float:
        """eps_bar L: how strongly the reaction can counteract mu."""
        return self.eps_bar * self.L if self.eps_bar > 0 else 0.0

    @property
    def margin(self) -> float:
        """delta eps_bar L, or half of mu - eps_bar L: what Young's inequality may subtract from the contraction."""
        return (self.mu - self.pull) / 2.0 if self.delta is None else self.delta * self.pull

    @property
    def mu_tilde(self) -> float:
        """mu - (1 + delta) eps_bar L."""
        return self.mu - self.pull - self.margin

    @classmethod
    @checked
    def of_clients(
        cls, mu: float, L: float, sigma: float, varsigma: float, eps: Values, distance: float,
        weights: Values | None = None, delta: float | None = None, G: float | None = None, Lz: float | None = None,
    ) -> "Assumptions":  # fmt: skip
        """From the sensitivities eps_i and weights p_i of each client."""
        eps = np.atleast_1d(np.asarray(eps, np.float64))
        if eps.ndim != 1 or not eps.size or np.any(eps < 0):
            raise ValueError(f"eps must contain one sensitivity >= 0 per client; got {eps}.")
        p = np.full(len(eps), 1.0 / len(eps)) if weights is None else np.asarray(weights, np.float64)
        if p.shape != eps.shape or not np.all(p >= 0) or abs(p.sum() - 1.0) > 1e-6:
            raise ValueError(f"weights must contain one p_i >= 0 for each of the {len(eps)} eps and sum to one.")
        q = len(eps) * p
        return cls(
            mu, L, sigma, varsigma, float(p @ eps), float(eps.max()), distance,
            len(eps), float(q.max()), float(q.min()), delta, G, Lz,
        )  # fmt: skip

    @classmethod
    @checked
    def of_gaussian(
        cls, mean: Values, sensitivity: Values, scale: Values, *, weights: Values | None = None, batch: Count = 1,
        start: Finite = 0.0, delta: float | None = None, G: float | None = None,
    ) -> "Assumptions":  # fmt: skip
        """Constants that hold for Z_i ~ N(m_i + eps_i theta, scale_i^2) with the squared loss: mu = L = 1.

        grad f - grad f_i = a_i (theta - theta_PS) + b_i, so varsigma^2 = max_i a_i^2 + b_i^2 satisfies (2.6). The
        squared loss is not Lipschitz in z: Lz stays None. Without a stable point (sum p_i eps_i = 1) the distance is
        infinite.
        """
        m, eps, sd, p = read_clients(mean, sensitivity, scale, weights)
        gap, m_bar = 1.0 - float(p @ eps), float(p @ m)
        varsigma = distance = math.inf
        if abs(gap) > 1e-12:
            stable = m_bar / gap
            a = eps - float(p @ eps)
            varsigma = float(np.sqrt(np.max(a**2 + (a * stable + m - m_bar) ** 2)))
            distance = (float(start) - stable) ** 2
        sigma = float(sd.max()) / math.sqrt(batch)
        return cls.of_clients(1.0, 1.0, sigma, varsigma, np.abs(eps), distance, p, delta, G)

    def rescaled(self, printed: bool = False) -> "Assumptions":
        """The assumptions of the equally weighted problem g_i = N p_i f_i, to which Theorem 3.3 applies.

        Its clients step along N p_i grad f_i; for E > 1 that is not Scheme II with weights p_i N / K on plain
        updates. With q = N max_i p_i:

            L' = q L,   sigma' = q sigma,   varsigma' = q varsigma + max_i |1 - N p_i| L (1 + eps_bar)

        mu' = mu and eps_bar' L' = eps_bar L, as f is unchanged; G' = q G, Lz' = q Lz. Differs from the paper, which
        prints mu' = N min_i p_i mu and square roots of q, and omits the last term: equal f_i with unequal p_i have
        varsigma = 0, yet the gradients of g_i differ.
        """
        q = self.heaviest
        if printed:
            root = math.sqrt(q)
            return dataclasses.replace(
                self, mu=self.lightest * self.mu, L=q * self.L, sigma=root * self.sigma,
                varsigma=root * self.varsigma, heaviest=1.0, lightest=1.0,
            )  # fmt: skip
        uneven = max(q - 1.0, 1.0 - self.lightest)
        G, Lz = (None if value is None else q * value for value in (self.G, self.Lz))
        return dataclasses.replace(
            self, L=q * self.L, sigma=q * self.sigma, eps_bar=self.eps_bar / q,
            varsigma=q * self.varsigma + (uneven * self.L * (1.0 + self.eps_bar) if uneven > 0 else 0.0),
            heaviest=1.0, lightest=1.0, G=G, Lz=Lz,
        )  # fmt: skip

    def unmet(self) -> tuple[str, ...]:
        """Which of (2.1) to (2.3) and mu_tilde > 0 these numbers violate."""
        if not self.mu > 0:
            return ("(2.1) mu > 0: f(. ; theta) is not known to be strongly convex",)
        found = infinite(self, (("L", "2.2"), ("eps_max", "2.3")))
        if found:
            return found
        if self.mu > self.L:
            return (f"mu <= L, as for any function: mu is {self.mu:.6g}, L is {self.L:.6g}",)
        if not self.pull < self.mu:
            return (f"eps_bar < mu / L = {self.mu / self.L:.6g}: eps_bar is {self.eps_bar:.6g}",)
        if not self.margin > 0:
            return ("delta eps_bar L > 0: eps_bar is 0, so omit delta",)
        if not self.mu_tilde > 0:
            return (
                f"(1 + delta) eps_bar L < mu: mu_tilde is {self.mu_tilde:.6g}; use a delta below "
                f"{self.mu / self.pull - 1.0:.6g}",
            )
        return ()


def infinite(given: Assumptions, named: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """One sentence for each constant that is not finite; named: (field, number in the paper)."""
    return tuple(
        f"({number}) {name} finite: none is known"
        for name, number in named
        if getattr(given, name) is None or not math.isfinite(getattr(given, name))
    )

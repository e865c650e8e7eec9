"""The convergence theorems of P-FedAvg: what they assume, their constants, the steps they allow.

    E |theta_t - theta_PS|^2 <= v / (gamma + t)      with      eta_t = 2 / (mu_tilde (t + gamma))

Jin et al. 2024 (the paper) and its 2023 preprint, Theorems 3.1 to 3.3 and Table 2. The bounds are far above
the real error on the paper's own example (see `gaussian_moments` for that), so the steps are safe and slow.
"""

import dataclasses
import math
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Assumptions:
    """What the theorems take for granted, as numbers.

    mu:          f(. ; theta) is mu-strongly convex (2.1); L: the loss is L-smooth in theta and z (2.2)
    sigma:       E |grad l - grad f_i|^2 <= sigma^2 (1 + |theta - theta_PS|^2) (2.5)
    varsigma:    |grad f - grad f_i|^2 <= varsigma^2 (1 + |theta - theta_PS|^2) (2.6)
    eps_bar, eps_max: mean and largest sensitivity of D_i in Wasserstein distance (2.3)
    distance:    E |theta_0 - theta_PS|^2
    clients:     N, and heaviest: N max_i p_i, 1 for equal weights; lightest: N min_i p_i
    delta:       free parameter > 0 of mu_tilde = mu - (1 + delta) eps_bar L; None halves mu - eps_bar L
    """

    mu: float
    L: float
    sigma: float
    varsigma: float
    eps_bar: float
    eps_max: float
    distance: float
    clients: int = 1
    heaviest: float = 1.0
    lightest: float = 1.0
    delta: float | None = None

    def __post_init__(self) -> None:
        for name in ("mu", "L", "eps_bar", "eps_max", "distance"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a positive number; got {value}.")
        for name in ("sigma", "varsigma"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must not be negative; got {value}.")
        if self.eps_bar > self.eps_max * (1 + 1e-12):
            raise ValueError(f"eps_bar must not exceed eps_max; got {self.eps_bar:g} > {self.eps_max:g}.")
        if self.clients < 1:
            raise ValueError(f"clients must be a whole number N >= 1; got {self.clients}.")
        if not self.mu_tilde > 0:
            raise ValueError(
                f"mu - (1 + delta) eps_bar L must be positive; it is {self.mu_tilde:.6g} (mu={self.mu:g}, "
                f"L={self.L:g}, eps_bar={self.eps_bar:g}, delta={self.slack:g}). The theorems cover "
                "eps_bar < mu / L" + (" only." if self.eps_bar * self.L >= self.mu else ": take a smaller delta.")
            )

    @property
    def slack(self) -> float:
        """delta, spelled out."""
        return (self.mu / (self.eps_bar * self.L) - 1.0) / 2.0 if self.delta is None else self.delta

    @property
    def mu_tilde(self) -> float:
        """mu - (1 + delta) eps_bar L."""
        return self.mu - (1.0 + self.slack) * self.eps_bar * self.L

    @classmethod
    def of_clients(
        cls, mu: float, L: float, sigma: float, varsigma: float, eps: Any, distance: float,
        weights: Any = None, delta: float | None = None,
    ) -> "Assumptions":  # fmt: skip
        """From the sensitivities eps_i and weights p_i of each client."""
        eps = np.atleast_1d(np.asarray(eps, np.float64))
        p = np.full(len(eps), 1.0 / len(eps)) if weights is None else np.asarray(weights, np.float64)
        if p.shape != eps.shape or np.any(p < 0) or abs(p.sum() - 1.0) > 1e-6:
            raise ValueError(f"weights must hold one p_i >= 0 for each of the {len(eps)} eps and sum to one.")
        q = len(eps) * p
        return cls(
            mu, L, sigma, varsigma, float(p @ eps), float(eps.max()), distance,
            len(eps), float(q.max()), float(q.min()), delta,
        )  # fmt: skip

    @classmethod
    def of_gaussian(
        cls, mean: Any, sensitivity: Any, scale: Any, *, weights: Any = None, batch: int = 1,
        start: float = 0.0, delta: float | None = None,
    ) -> "Assumptions":  # fmt: skip
        """Constants that hold for Z_i ~ N(m_i + eps_i theta, scale_i^2) with the squared loss: mu = L = 1.

        grad f - grad f_i = a_i (theta - theta_PS) + b_i, so varsigma^2 = max_i a_i^2 + b_i^2 serves (2.6).
        """
        m, eps, sd = (np.asarray(v, np.float64) for v in np.broadcast_arrays(mean, sensitivity, scale))
        m, eps, sd = np.atleast_1d(m), np.atleast_1d(eps), np.atleast_1d(sd)
        p = np.full(len(m), 1.0 / len(m)) if weights is None else np.asarray(weights, np.float64)
        eps_bar, m_bar = float(p @ eps), float(p @ m)
        stable = m_bar / (1.0 - eps_bar)
        a = eps - eps_bar
        varsigma = float(np.sqrt(np.max(a**2 + (a * stable + m - m_bar) ** 2)))
        sigma = float(sd.max()) / math.sqrt(batch)
        return cls.of_clients(1.0, 1.0, sigma, varsigma, np.abs(eps), (start - stable) ** 2, p, delta)

    def rescaled(self, printed: bool = False) -> "Assumptions":
        """The assumptions of the equally weighted problem g_i = N p_i f_i, to which Theorem 3.3 applies.

        Its clients step along N p_i grad f_i; for E > 1 that is not Scheme II with weights p_i N / K on plain
        updates. With q = N max_i p_i:

            L' = q L,   sigma' = q sigma,   varsigma' = q varsigma + max_i |1 - N p_i| L (1 + eps_bar)

        mu' = mu and eps_bar' L' = eps_bar L, for f is unchanged. Differs from the paper, which prints
        mu' = N min_i p_i mu and square roots of q, and lacks the last term: equal f_i with unequal p_i have
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
        return dataclasses.replace(
            self, L=q * self.L, sigma=q * self.sigma, eps_bar=self.eps_bar / q,
            varsigma=q * self.varsigma + uneven * self.L * (1.0 + self.eps_bar), heaviest=1.0, lightest=1.0,
        )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Theorem:
    """The constants of one theorem.

    eta_0 is its hat or tilde eta_0, an upper limit; the first step is 2 / (mu_tilde gamma). `drift` is the
    factor of the consensus error: (2E^2 - E) log E with full participation, else c6 = (2E^2 + 3E + 1) log(E
    + 1).
    """

    mu_tilde: float
    c1: float
    c2: float
    c3: float
    c4: float
    c5: float
    drift: float
    eta_0: float
    B: float
    gamma: float
    v: float

    def eta(self, t: Any) -> Any:
        """The step of local step t."""
        return 2.0 / (self.mu_tilde * (t + self.gamma))

    def bound(self, t: Any) -> Any:
        """The bound on E |theta_t - theta_PS|^2."""
        return self.v / (self.gamma + t)


def p_fedavg(
    assumptions: Assumptions,
    local_steps: int,
    scheme: str = "full",
    k: int | None = None,
    printed: bool = False,
) -> Theorem:
    """Theorem 3.1 ("full"), 3.2 (Scheme "one", k draws) or 3.3 (Scheme "two", k of N, equal weights).

    Differs from the paper, unless printed=True:
    - 2 sigma^2 in eta_0 is divided by E |theta_0 - theta_PS|^2, as Lemma B.2 has it;
    - gamma also honours eta_0 <= mu_tilde / c2, which Lemma B.1 needs;
    - Theorem 3.3's root takes c3, like 3.2;
    - the induction behind eta_0 takes 3 (4 c1 eta + 4 c2 eta^2 + u) <= c1 c3 + c2 / 6 for granted (u = 0,
      1/K or (N-K)/(K(N-1))): true where L is about 1 or more, else the left side at the largest step is used.
    c2 has the factor 4 in both forms (Table 2 of the paper prints "A" for it) and c1 has L, not L^2.
    """
    E = local_steps
    if isinstance(E, bool) or not isinstance(E, (int, np.integer)) or E < 1:
        raise ValueError(f"local_steps must be a whole number E >= 1; got {E!r}.")
    a, chance = assumptions, _participation_variance(assumptions, scheme, k)
    mu, slack, s2, reach = a.mu_tilde, a.slack, a.sigma**2, (1.0 + a.eps_max) ** 2
    c1 = a.L * reach / (2.0 * slack * a.eps_bar)
    c2 = 4.0 * (s2 + a.L**2 * reach)
    c3 = 6.0 * (2.0 * s2 + 3.0 * a.L**2 * reach)
    c4 = 16.0 * s2 + 12.0 * a.varsigma**2 + (8.0 * s2 + 12.0 * a.varsigma**2) / a.distance
    c5 = 3.0 * c4 * a.distance
    if scheme == "full":
        drift, root = (2 * E**2 - E) * math.log(E), (4 * E**2 + 2 * E) * c3
    else:
        drift = (2 * E**2 + 3 * E + 1) * math.log(E + 1)
        root = (4 * E**2 + 10 * E + 6) * (c5 if printed and scheme == "two" else c3)
    brackets = c1 * c3 + c2 / 6.0
    start_noise = 2.0 * s2
    limits = [float(E), 2.0 / mu * math.sqrt(root)]
    if not printed:
        start_noise /= a.distance
        limits.append(2.0 * c2 / mu**2)
        largest = 2.0 / (mu * max(limits))
        brackets = max(brackets, 3.0 * (4.0 * c1 * largest + 4.0 * c2 * largest**2 + chance))
    denominator = start_noise + brackets * c4 * drift
    eta_0 = mu / denominator if denominator > 0 else math.inf
    B = 2.0 * s2
    if c5 * drift > 0:
        B += (4.0 * c1 * eta_0 + 4.0 * c2 * eta_0**2 + chance) * c5 * drift
    gamma = max(2.0 / (mu * eta_0), *limits)
    v = max(4.0 * B / mu**2, gamma * a.distance)
    return Theorem(mu, c1, c2, c3, c4, c5, drift, eta_0, B, gamma, v)


def _participation_variance(assumptions: Assumptions, scheme: str, k: int | None) -> float:
    N = assumptions.clients
    if scheme == "full":
        if k is not None:
            raise ValueError(f'k is for scheme "one" or "two"; with "full" leave it out (got k={k}).')
        return 0.0
    if scheme not in ("one", "two"):
        raise ValueError(f'scheme must be "full", "one" or "two"; got {scheme!r}.')
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1 or (scheme == "two" and k > N):
        limit = f" and k <= {N} clients" if scheme == "two" else ""
        raise ValueError(f'scheme "{scheme}" needs a whole number of clients k >= 1{limit}; got k={k!r}.')
    if scheme == "one":
        return 1.0 / k
    if assumptions.heaviest > 1.0 + 1e-9:
        raise ValueError(
            "Theorem 3.3 (Scheme II) needs equal weights; the heaviest client has "
            f"{assumptions.heaviest:.4g} times an equal share. Use scheme one, or assumptions.rescaled() for "
            "clients that step along N p_i grad f_i."
        )
    return (N - k) / (k * (N - 1)) if N > 1 else 0.0

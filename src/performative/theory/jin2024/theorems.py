"""The convergence theorems of P-FedAvg: what they assume, their constants, the steps they allow.

    E |theta_t - theta_PS|^2 <= v / (gamma + t)      with      eta_t = beta / (t + gamma)

Jin et al. 2024 (the paper) and its 2023 preprint, Theorems 3.1 to 3.3 and Table 2. The bounds are far above the actual
error on the paper's own example (`gaussian_beside` compares the two), so the steps are safe and slow.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from performative._base.arguments import Count, checked
from performative.theory.gaussian import check_scheme
from performative.theory.index import numbered
from performative.theory.jin2024.assumptions import Assumptions, infinite

NAMES = {"full": "3.1", "one": "3.2", "two": "3.3"}


@dataclasses.dataclass(frozen=True, eq=False)
class Theorem:
    """What one theorem says about one problem.

    Attributes:
        name: its number; printed: whether in the paper's own form
        beta, gamma: eta_t = beta / (t + gamma); NaN if a theorem that chooses them does not apply
        v: of the bound v / (gamma + t)
        constants: the rest, by the paper's names. drift is the factor of the consensus error: (2E^2 - E) log E with
            full participation, else c6 = (2E^2 + 3E + 1) log(E + 1). eta_0 is the theorem's hat or tilde eta_0, an
            upper limit; the first step is beta / gamma.
        unmet: preconditions that the problem or the steps violate; if there are any, nothing is proved
    """

    name: str
    local_steps: int
    scheme: str
    k: int | None
    beta: float
    gamma: float
    v: float
    constants: Mapping[str, float]
    unmet: tuple[str, ...] = ()
    printed: bool = False

    @property
    def holds(self) -> bool:
        """Whether every precondition is met."""
        return not self.unmet

    def eta(self, t: Any) -> Any:
        """The step size of local step t."""
        if math.isnan(self.gamma):
            raise ValueError(f"Theorem {self.name} allows no step; unmet: {'; '.join(self.unmet)}.")
        return self.beta / (t + self.gamma)

    def bound(self, t: Any) -> Any:
        """The bound on E |theta_t - theta_PS|^2; infinite if a precondition is unmet."""
        if self.unmet:
            return np.full(np.shape(t), math.inf) if np.ndim(t) else math.inf
        return self.v / (self.gamma + t)


@checked
def p_fedavg(
    assumptions: Assumptions, local_steps: Count, scheme: str = "full", k: int | None = None, printed: bool = False
) -> Theorem:
    """Theorem 3.1 ("full"), 3.2 (Scheme "one", k draws) or 3.3 (Scheme "two", k of N, equal weights).

        beta = 2 / mu_tilde,   gamma = max(2 / (mu_tilde eta_0), E, 2 sqrt(root c3) / mu_tilde, 2 c2 / mu_tilde^2)
        v = max(4 B / mu_tilde^2, gamma E |theta_0 - theta_PS|^2)

    root: 4E^2 + 2E with full participation, else 4E^2 + 10E + 6.
    Differs from the paper, unless printed=True:
    - 2 sigma^2 in eta_0 is divided by E |theta_0 - theta_PS|^2, as in Lemma B.2;
    - gamma also enforces eta_0 <= mu_tilde / c2, which Lemma B.1 needs;
    - Theorem 3.3's root takes c3, like 3.2;
    - the induction behind eta_0 assumes 3 (4 c1 eta + 4 c2 eta^2 + u) <= c1 c3 + c2 / 6 (u = 0, 1/K or (N-K)/(K(N-1))):
      true if L is about 1 or more, else the left side at the largest step is used.
    c2 has the factor 4 in both forms (Table 2 of the paper prints "A" for it) and c1 has L, not L^2.
    """
    a, E = assumptions, local_steps
    chance, uneven = participation(a, scheme, k)
    name, unmet = NAMES.get(scheme, ""), preconditions(a) + uneven
    if unmet:
        return Theorem(name, E, scheme, k, math.nan, math.nan, math.inf, {"mu_tilde": a.mu_tilde}, unmet, printed)
    mu, c = a.mu_tilde, table_2(a, E, scheme)
    root = (4 * E**2 + 2 * E) if scheme == "full" else (4 * E**2 + 10 * E + 6)
    c_root = c["c5"] if printed and scheme == "two" else c["c3"]
    limits = [float(E), 2.0 / mu * math.sqrt(root * c_root)]
    if not printed:
        limits.append(2.0 * c["c2"] / mu**2)
    eta_0 = largest_first_step(a, c, chance, printed, 2.0 / (mu * max(limits)))
    B = 2.0 * a.sigma**2 + consensus(c, eta_0, chance)
    gamma = max(2.0 / (mu * eta_0), *limits)
    v = max(4.0 * B / mu**2, gamma * a.distance)
    return Theorem(name, E, scheme, k, 2.0 / mu, gamma, v, {**c, "eta_0": eta_0, "B": B}, (), printed)


@numbered("jin2024", "Theorem 3.1", "E |theta_t - theta_PS|^2, all clients")
@checked
def theorem_3_1(assumptions: Assumptions, local_steps: Count, printed: bool = False) -> Theorem:
    """Theorem 3.1: full participation; see `p_fedavg`."""
    return p_fedavg(assumptions, local_steps, "full", None, printed)


@numbered("jin2024", "Theorem 3.2", "E |theta_t - theta_PS|^2, Scheme I")
@checked
def theorem_3_2(assumptions: Assumptions, local_steps: Count, k: Count, printed: bool = False) -> Theorem:
    """Theorem 3.2: Scheme I, k draws with replacement; see `p_fedavg`."""
    return p_fedavg(assumptions, local_steps, "one", k, printed)


@numbered("jin2024", "Theorem 3.3", "E |theta_t - theta_PS|^2, Scheme II")
@checked
def theorem_3_3(assumptions: Assumptions, local_steps: Count, k: Count, printed: bool = False) -> Theorem:
    """Theorem 3.3: Scheme II, k of N without replacement, equal weights; see `p_fedavg`."""
    return p_fedavg(assumptions, local_steps, "two", k, printed)


def participation(assumptions: Assumptions, scheme: str, k: int | None) -> tuple[float, tuple[str, ...]]:
    """u of E |mean of the drawn - mean of all|^2 <= u sum_i p_i |w_i - mean|^2, and what the scheme requires."""
    N = assumptions.clients
    check_scheme(scheme, k, N)
    if scheme == "full" or k is None:
        return 0.0, ()
    if scheme == "one":
        return 1.0 / k, ()
    if assumptions.heaviest > 1.0 + 1e-9:
        return 0.0, (
            "equal weights (Scheme II): the heaviest client has "
            f"{assumptions.heaviest:.4g} times an equal share. Use scheme one, or assumptions.rescaled() for "
            "clients that step along N p_i grad f_i",
        )
    return ((N - k) / (k * (N - 1)) if N > 1 else 0.0), ()


def preconditions(a: Assumptions) -> tuple[str, ...]:
    """What Theorems 3.1 to 3.3, B.4 and C.5 require of the problem."""
    found = a.unmet() + infinite(a, (("sigma", "2.5"), ("varsigma", "2.6")))
    if not 0 < a.distance < math.inf:
        # The induction keeps the distance below its start, which noise forbids if the start is theta_PS.
        found += (f"0 < E |theta_0 - theta_PS|^2 < inf: it is {a.distance:.6g}",)
    return found


def table_2(a: Assumptions, E: int, scheme: str) -> dict[str, float]:
    """The constants of Table 2."""
    s2, reach = a.sigma**2, (1.0 + a.eps_max) ** 2
    c4 = 16.0 * s2 + 12.0 * a.varsigma**2 + (8.0 * s2 + 12.0 * a.varsigma**2) / a.distance
    drift = (2 * E**2 - E) * math.log(E) if scheme == "full" else (2 * E**2 + 3 * E + 1) * math.log(E + 1)
    return {
        "mu_tilde": a.mu_tilde,
        "c1": descent_c1(a),
        "c2": 4.0 * (s2 + a.L**2 * reach),
        "c3": 6.0 * (2.0 * s2 + 3.0 * a.L**2 * reach),
        "c4": c4,
        "c5": 3.0 * c4 * a.distance,
        "drift": drift,
    }


def descent_c1(a: Assumptions) -> float:
    """c1 = L (1 + eps_max)^2 / (2 delta eps_bar), written so that eps_bar = 0 needs no special case."""
    return a.L**2 * (1.0 + a.eps_max) ** 2 / (2.0 * a.margin)


def consensus(c: Mapping[str, float], eta: float, chance: float) -> float:
    """(4 c1 eta + 4 c2 eta^2 + u) c5 drift: the contribution of the clients' spread to B."""
    spread = c["c5"] * c["drift"]
    return (4.0 * c["c1"] * eta + 4.0 * c["c2"] * eta**2 + chance) * spread if spread > 0 else 0.0


def largest_first_step(a: Assumptions, c: Mapping[str, float], chance: float, printed: bool, largest: float) -> float:
    """hat or tilde eta_0; largest: an upper bound on the steps for other reasons."""
    noise, brackets = 2.0 * a.sigma**2, c["c1"] * c["c3"] + c["c2"] / 6.0
    if not printed:
        noise /= a.distance
        brackets = max(brackets, 3.0 * (4.0 * c["c1"] * largest + 4.0 * c["c2"] * largest**2 + chance))
    denominator = noise + brackets * c["c4"] * c["drift"]
    return c["mu_tilde"] / denominator if denominator > 0 else math.inf

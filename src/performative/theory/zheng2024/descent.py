"""Descent along an estimated performative gradient (PROFL, POFL): how far above the minimal risk it can end.

    theta_i <- theta_i - eta g_i,   g_i ~ grad L_i(theta_i),   averaged over the clients every R steps

Zheng et al. 2024, Theorem 5.10 and Corollary 5.11. The errors of g_i are bounded in `profl_lemmas`;
`PricingDescent` has the exact risk for one problem.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from performative._base.arguments import Count, Extended, NonNegative, Positive, Size, Values, checked
from performative.theory.bound import AbstractAssumptions, Bound, broken
from performative.theory.gaussian import check_weights
from performative.theory.index import numbered

CAUSES = "transient error noise"


@dataclasses.dataclass(frozen=True)
class PerformativeAssumptions(AbstractAssumptions):
    """The assumptions of Theorem 5.10 and its lemmas, as numbers; inf if no bound is known.

    Attributes:
        L: |grad l(z; theta) - grad l(z'; theta')| <= L (|theta - theta'| + |z - z'|)  (5.2)
        gamma: sensitivity of D_i(theta) in Wasserstein distance (5.1), a number or one per client
        rho: PL constant of the risk of *all* clients: |grad L|^2 / 2 >= rho (L - L(theta_PO)); 0 if it has none
        gap: E L(theta_0) - L(theta_PO)
        smoothness: grad L_i is Lipschitz with this constant, a number or one per client; see `location_smoothness`
        G: |g_i| <= G, the direction that a client actually takes (root mean square suffices for the theorem)
        F, M: |df_i/dtheta| <= F and |d^2 f_i/dtheta^2| <= M  (5.3, Lemma 5.6)
        l_max: |l(z; theta)| <= l_max, for the lemmas
        weights: alpha_i, None: equal
        dimension: d of theta, and of f

    Differs from the paper:
    - (5.4) requires PL of each client's own risk; the proof uses it for their sum. One does not imply the other: x^2 +
        3 sin^2 x is PL, and its mean with a copy shifted by pi has a maximum in the middle.
    - The proof uses L (1 + gamma_i) as `smoothness`. It bounds the change of grad l, not of grad L_i, which has a
      second term: pricing has 2 gamma_i.
    - G bounds grad l (Lemma 5.6); the proof uses it for grad L_i and for g_i, which may be larger.
    """

    L: NonNegative
    gamma: Values
    rho: NonNegative
    gap: NonNegative
    smoothness: Extended = math.inf
    G: Size = math.inf
    F: Size = math.inf
    M: Size = math.inf
    l_max: Size = math.inf
    weights: Values | None = None
    dimension: Count = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        alpha = self.alpha
        check_weights(alpha)
        for name in ("gamma", "smoothness"):
            value = getattr(self, name)
            if np.size(value) not in (1, len(alpha)) or np.any(np.asarray(value) < 0):
                raise ValueError(f"{name} must be a number >= 0 or one per client, [{len(alpha)}]; got {value}.")

    @property
    def alpha(self) -> np.ndarray:
        """alpha_i, [N]."""
        if self.weights is not None:
            return np.atleast_1d(np.asarray(self.weights, np.float64))
        N = max(np.size(self.gamma), np.size(self.smoothness))
        return np.full(N, 1.0 / N)

    @property
    def gammas(self) -> np.ndarray:
        """gamma_i, [N]."""
        return np.broadcast_to(np.asarray(self.gamma, np.float64), self.alpha.shape)

    @property
    def lipschitz(self) -> np.ndarray:
        """Lambda_i, the Lipschitz constant of grad L_i, [N]."""
        return np.broadcast_to(np.asarray(self.smoothness, np.float64), self.alpha.shape)


@checked
def location_smoothness(
    gamma: Extended, *, model: float = 0.0, cross: float = 0.0, data: float = 0.0, curvature: float = 0.0,
    slope: float = 0.0,
) -> Any:  # fmt: skip
    """The Lipschitz constant of grad L_i if z = xi + f_i(theta) and |df_i/dtheta| <= gamma.

        Lambda = L_theta + 2 gamma L_cross + gamma^2 L_z + M sup |E grad_z l|

    Args:
        model, cross, data: bounds of the second derivatives of l by theta twice, by theta and z, by z twice
        curvature, slope: M and a bound of |E grad_z l|

    Pricing has cross = 1 and nothing else: 2 gamma. The printed L (1 + gamma) is not in this form (see the class).
    """
    return model + 2.0 * gamma * cross + gamma**2 * data + curvature * slope


@checked
def client_drift(given: PerformativeAssumptions, eta: Positive, local_steps: Count) -> float:
    """|sum alpha_i (grad L_i(theta_bar) - grad L_i(theta_i))|, root mean square, within R steps of an average.

        (R - 1) eta G sqrt(sum alpha_i Lambda_i^2)

    By Cauchy-Schwarz, and since sum alpha_i |theta_bar - theta_i|^2 <= ((R - 1) eta G)^2: what the proof of Theorem
    5.10 needed from Lemma C.1.
    """
    if local_steps == 1:
        return 0.0
    return (local_steps - 1) * eta * given.G * math.sqrt(float(given.alpha @ given.lipschitz**2))


@numbered("zheng2024", "Theorem 5.10", "E L(theta_t) - L(theta_PO)")
@checked
def theorem_5_10(
    given: PerformativeAssumptions, eta: Positive, steps: Count, *, local_steps: Count = 1, error: NonNegative = 0.0,
    variance: NonNegative = 0.0, smallest: NonNegative = 0.0, printed: bool = False,
) -> Bound:  # fmt: skip
    """Theorem 5.10: E L(theta_bar_t) - L(theta_PO) for t = 0, ..., T = steps, with a constant step eta.

        a_{t+1} <= (1 - rho eta) a_t + eta (drift + sqrt(error))^2 / 2 + Lambda eta^2 variance / 2
                   + eta max(0, Lambda eta - 1) G^2 / 2,        Lambda = sum alpha_i Lambda_i

    Args:
        error: bound on E |sum alpha_i (E_t g_i - grad L_i(theta_i))|^2, that of Lemma C.2 if nothing else is known
        variance: E |g - E_t g|^2 of the averaged g, if a part of its error is known to have mean zero; else 0
        smallest: g_min^2, a lower bound of E |g_t|^2; in the printed form only

    Full participation, and no projection is active. t counts local steps.
    Terms: transient (what remains of the start), noise (errors of g with mean zero) and error (the rest: bias of g,
    clients that drift apart between averages, steps that are too large).

    Differs from the paper, unless printed=True:
    - a_{t+1} <= (1 - rho eta) a_t + C gives a_t <= (1 - rho eta)^t a_0 + C / (rho eta); C alone is printed. A constant
      error b of the gradient in pricing ends b^2 / (4 gamma) above the minimal risk for any eta, while C goes to 0 with
      eta. The form above is exact there.
    - L (1 + gamma) is not a smoothness constant of the risk (see `PerformativeAssumptions`).
    - Not needed: the term L (1 + gamma) G^2 eta^2, if eta <= 1 / Lambda, and g_min.
    - |x + y|^2 / 2 <= |x|^2 + |y|^2, so the drift has the factor 1, not 1/2, in the printed C.
    - The proof has no projection and sums over all clients; Algorithm 1 projects, and takes a subset.
    """
    t = np.arange(steps + 1)
    unmet = _unmet(given, eta, local_steps, printed)
    if unmet and not (printed and given.rho > 0):
        return Bound.nothing(CAUSES, unmet, steps)
    if printed:
        return _printed(given, eta, t, local_steps, error + variance, smallest, unmet)
    keep = max(0.0, 1.0 - given.rho * eta)
    smooth = float(given.alpha @ given.lipschitz)
    long = max(0.0, smooth * eta - 1.0)
    step = eta / 2.0 * (client_drift(given, eta, local_steps) + math.sqrt(error)) ** 2
    step += eta / 2.0 * long * given.G**2 if long > 0 else 0.0
    # If rho eta is below roundoff nothing is forgotten: a sum of t steps.
    total = (1.0 - keep**t) / (1.0 - keep) if keep < 1.0 else t.astype(np.float64)
    return Bound.by(CAUSES, keep**t * given.gap, total * step, total * smooth * eta**2 * variance / 2.0)


@numbered("zheng2024", "Corollary 5.11", "the same without contamination, and when there is no floor")
@checked
def corollary_5_11(
    given: PerformativeAssumptions, eta: Positive, steps: Count, *, relative: float | None = None,
    local_steps: Count = 1, error: NonNegative = 0.0, variance: NonNegative = 0.0, smallest: NonNegative = 0.0,
    printed: bool = False,
) -> Bound:  # fmt: skip
    """Corollary 5.11: Theorem 5.10 without contamination, and when it leaves no floor.

        E |g_t - grad L(theta_t)|^2 <= kappa^2 E |grad L(theta_t)|^2, kappa < 1, R = 1, eta <= 1 / Lambda:
        a_t <= (1 - (1 - kappa^2) rho eta)^t a_0

    Args:
        relative: kappa, an error that shrinks with the gradient; None: Theorem 5.10 with the given error

    Differs from the paper, which requires an error below g_min^2 / 2 over the whole run and drops the rest of C. If the
    model converges, g_min is 0, so this cannot hold to the end: with a constant error b of the gradient in pricing it
    fails while the risk is still (sqrt 2 - 1)^2 b^2 / (4 gamma) too high. Its second case requires the same with g_min
    = 0.
    """
    if relative is None and not printed:
        return theorem_5_10(given, eta, steps, local_steps=local_steps, error=error, variance=variance)
    unmet = _unmet(given, eta, local_steps, printed)
    if printed or relative is None:
        found, asked = error + variance, smallest / 2.0
        unmet += broken((found < asked, f"omega_D^2 < g_min^2 / 2 = {asked:.4g}: it is {found:.4g}"))
        rate = given.rho
    else:
        smooth, rate = float(given.alpha @ given.lipschitz), (1.0 - relative**2) * given.rho
        longest = 1.0 / smooth if smooth > 0 else math.inf
        unmet += broken(
            (0 <= relative < 1, f"kappa < 1: the error is {relative:.4g} of the gradient"),
            (eta * smooth <= 1.0 + 1e-12, f"eta <= 1 / Lambda = {longest:.4g}: the step is {eta:.4g}"),
            (local_steps == 1, f"R = 1: with R = {local_steps} the drift does not shrink with the gradient"),
        )
    zero = np.zeros(steps + 1)
    if unmet:
        return Bound.nothing(CAUSES, unmet, steps)
    return Bound.by(CAUSES, (1.0 - rate * eta) ** np.arange(steps + 1) * given.gap, zero, zero)


def _printed(
    given: PerformativeAssumptions, eta: float, t: np.ndarray, R: int, error: float, smallest: float, unmet: Any
) -> Bound:
    alpha, gamma, L, G2 = given.alpha, given.gammas, given.L, given.G**2
    apart = 0.5 * L**2 * (R - 1) ** 2 * G2 * float(alpha @ (1.0 + gamma) ** 2) * eta**3 if R > 1 else 0.0
    C = (error - smallest / 2.0) * eta + L * (1.0 + float(alpha @ gamma)) * (error + G2) * eta**2 + apart
    return Bound.by(CAUSES, (1.0 - given.rho * eta) ** t * given.gap, np.full(len(t), C), np.zeros(len(t)), unmet=unmet)


def _unmet(given: PerformativeAssumptions, eta: float, local_steps: int, printed: bool) -> tuple[str, ...]:
    rho, smooth, bounded = given.rho, float(given.alpha @ given.lipschitz), math.isfinite(given.G)
    found = broken((rho > 0, "rho > 0: the risk of all clients must satisfy the PL condition"))
    if printed:
        longest = 1.0 / rho if rho > 0 else math.inf
        return found + broken(
            (rho * eta <= 1, f"eta <= 1 / rho = {longest:.4g}: the step is {eta:.4g}"),
            (bounded, "G must be finite: the gradients must be bounded"),
        )
    needed = local_steps > 1 or eta * smooth > 1
    return found + broken(
        (math.isfinite(smooth), "smoothness must be finite: grad L_i must be Lipschitz"),
        (rho <= smooth * (1 + 1e-9), f"rho <= Lambda = {smooth:.4g}, as for every smooth risk: rho is {rho:.4g}"),
        (bounded or not needed, "G must be finite if R > 1 or eta > 1 / Lambda: the directions must be bounded"),
    )

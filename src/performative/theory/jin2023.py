"""P-FedAvg with any harmonic steps: Theorems B.4, C.5, D.5 and D.8 of the 2023 preprint of Jin et al. 2024.

    E |theta_t - theta_PS|^2 <= v / (gamma + t)      with      eta_t = beta / (t + gamma)

B.4 and C.5 underlie Theorems 3.1 to 3.3. D.5 and D.8 replace (2.6) by gradients of bounded second moment.
"""

import math

import numpy as np

from performative._base.arguments import Count, Positive, checked
from performative.theory.bound import broken
from performative.theory.index import numbered
from performative.theory.jin2024.assumptions import Assumptions, infinite
from performative.theory.jin2024.theorems import (
    Theorem,
    consensus,
    descent_c1,
    largest_first_step,
    participation,
    preconditions,
    table_2,
)

__all__ = ["theorem_b_4", "theorem_c_5", "theorem_d_5", "theorem_d_8"]

ROUNDING = 1.0 + 1e-9


@numbered("jin2023", "Theorem B.4", "Theorem 3.1 with any beta / (t + gamma)")
@checked
def theorem_b_4(
    assumptions: Assumptions, local_steps: Count, beta: Positive, gamma: Positive, printed: bool = False
) -> Theorem:
    """Theorem B.4: full participation and any eta_t = beta / (t + gamma) that meets the conditions of the proof.

        v = max(beta^2 B / (beta mu_tilde - 1), gamma E |theta_0 - theta_PS|^2)
        B = 2 sigma^2 + (4 c1 eta_0 + 4 c2 eta_0^2) c5 (2E^2 - E) log E,      eta_0 = beta / gamma
        beta > 1 / mu_tilde,   gamma >= E,   eta_0 <= mu_tilde / c2,   eta_0 B <= mu_tilde E |theta_0 - theta_PS|^2,
        eta_t^2 <= 1 / (2 c3 a (1 + 2a)) where t is the a-th step of its round

    The condition with B applies only for E > 1: without drift the proof needs no induction over the distance.

    Differs from the paper, unless printed=True:
    - v contains 4 B / mu_tilde^2 there, which is its value at beta = 2 / mu_tilde, the minimum over beta: too small for
        any other beta;
    - B is taken at the actual first step, and the condition with B is what its hat eta_0 stands for;
    - eta_0 <= mu_tilde / c2, which Lemma B.1 needs.
    """
    return _any_steps("B.4", assumptions, local_steps, beta, gamma, "full", None, printed)


@numbered("jin2023", "Theorem C.5", "Theorems 3.2 and 3.3 with any beta / (t + gamma)")
@checked
def theorem_c_5(
    assumptions: Assumptions, local_steps: Count, beta: Positive, gamma: Positive, scheme: str, k: Count,
    printed: bool = False,
) -> Theorem:  # fmt: skip
    """Theorem C.5: Scheme "one" or "two" and any eta_t = beta / (t + gamma); conditions as in `theorem_b_4`.

        B = 2 sigma^2 + (4 c1 eta_0 + 4 c2 eta_0^2 + u) c5 (2E^2 + 3E + 1) log(E + 1)

    u = 1/K (Scheme I) or (N-K)/(K(N-1)) (Scheme II). The theorem prints E |theta_{t+1} - theta_PS|^2 on the left;
    its proof has t. Differs from the paper as B.4 does.
    """
    if scheme == "full":
        raise ValueError('Theorem C.5 is for scheme "one" or "two"; use theorem_b_4 for full participation.')
    return _any_steps("C.5", assumptions, local_steps, beta, gamma, scheme, k, printed)


@numbered("jin2023", "Theorem D.5", "bounded gradients, all clients")
@checked
def theorem_d_5(
    assumptions: Assumptions, local_steps: Count, beta: Positive, gamma: Positive, printed: bool = False
) -> Theorem:
    """Theorem D.5: full participation, gradients of bounded second moment G^2 instead of (2.6).

        v = max((c2 c7 beta^4 / gamma^2 + c1 c7 beta^3 / gamma + 2 sigma^2 beta^2) / (beta mu_tilde - 1),
                gamma E |theta_0 - theta_PS|^2),      c7 = 4 (E - 1)^2 G^2
        beta > 1 / mu_tilde,   gamma >= E,   beta / gamma <= mu_tilde / c2

    Differs from the paper, unless printed=True:
    - beta mu - 1 in v, and c7 = 4 (E - 1) G^2 in Lemma D.4; both are too small;
    - eta_1 <= 1 / (4 L) is required, where Lemma B.1 needs eta_t <= mu_tilde / c2, which is smaller;
    - v contains (gamma + 1) E |theta_1 - theta_PS|^2 (here with Lemma B.1's bound on it);
    - (3) for all theta cannot hold, as |grad f(theta; theta)| >= (mu - eps_bar L) |theta - theta_PS|. The proof needs
      it at the models that clients visit; a G that theta_0 alone violates is unmet in both forms.
    """
    return _bounded_gradients("D.5", assumptions, local_steps, beta, gamma, "full", None, printed)


@numbered("jin2023", "Theorem D.8", "bounded gradients, Schemes I and II")
@checked
def theorem_d_8(
    assumptions: Assumptions, local_steps: Count, beta: Positive, gamma: Positive, scheme: str, k: Count,
    printed: bool = False,
) -> Theorem:  # fmt: skip
    """Theorem D.8: D.5 for Scheme "one" or "two" (its title says "full participation").

        c8 = 2 sigma^2 + 4 u E^2 G^2 in place of 2 sigma^2,      u = 1/K or (N-K)/(K(N-1)) (there called c9)

    Differs from the paper as D.5 does; its proof also prints L^2 for L in c1.
    """
    if scheme == "full":
        raise ValueError('Theorem D.8 is for scheme "one" or "two"; use theorem_d_5 for full participation.')
    return _bounded_gradients("D.8", assumptions, local_steps, beta, gamma, scheme, k, printed)


def unmet_steps(beta: float, gamma: float, mu: float, local_steps: int) -> tuple[str, ...]:
    """beta > 1 / mu_tilde, and gamma >= E, so eta_t <= 2 eta_{t+E}."""
    return broken(
        (beta * mu > 1.0, f"beta > 1 / mu_tilde = {1.0 / mu:.6g}: beta is {beta:.6g}"),
        (gamma * ROUNDING >= local_steps, f"gamma >= E = {local_steps}: gamma is {gamma:.6g}"),
    )


def unmet_first(eta: float, limit: float, name: str) -> tuple[str, ...]:
    """A first step of at most `limit`."""
    return broken((eta <= limit * ROUNDING, f"first step <= {name} = {limit:.6g}: it is {eta:.6g}; use a larger gamma"))


def _any_steps(
    name: str, a: Assumptions, E: int, beta: float, gamma: float, scheme: str, k: int | None, printed: bool
) -> Theorem:
    chance, uneven = participation(a, scheme, k)
    unmet = preconditions(a) + uneven
    if unmet:
        return Theorem(name, E, scheme, k, beta, gamma, math.inf, {"mu_tilde": a.mu_tilde}, unmet, printed)
    mu, first, c = a.mu_tilde, beta / gamma, table_2(a, E, scheme)
    unmet = unmet_steps(beta, gamma, mu, E)
    age = np.arange(1, E + 1)
    steep = beta / (gamma + age - 1) * np.sqrt(2 * c["c3"] * age * (1 + 2 * age))
    if printed:
        eta_0 = largest_first_step(a, c, chance, printed, first)
        unmet += unmet_first(first, eta_0, "eta_0")
        B, factor = 2.0 * a.sigma**2 + consensus(c, eta_0, chance), 4.0 / mu**2
    else:
        B = 2.0 * a.sigma**2 + consensus(c, first, chance)
        eta_0 = mu * a.distance / B if B > 0 else math.inf
        unmet += unmet_first(first, mu / c["c2"], "mu_tilde / c2")
        if c["c5"] * c["drift"] > 0 and first > eta_0 * ROUNDING:
            unmet += (f"eta_0 B <= mu_tilde E |theta_0 - theta_PS|^2 = {mu * a.distance:.6g}: it is {first * B:.6g}",)
        factor = beta**2 / (beta * mu - 1.0) if beta * mu > 1.0 else math.inf
    if steep.max() > ROUNDING:
        unmet += (f"2 c3 eta_t^2 a (1 + 2a) <= 1 at each a-th step of a round: it reaches {steep.max() ** 2:.6g}",)
    v = math.inf if unmet else max(factor * B, gamma * a.distance)
    return Theorem(name, E, scheme, k, beta, gamma, v, {**c, "eta_0": eta_0, "B": B}, unmet, printed)


def _bounded_gradients(
    name: str, a: Assumptions, E: int, beta: float, gamma: float, scheme: str, k: int | None, printed: bool
) -> Theorem:
    chance, uneven = participation(a, scheme, k)
    unmet = a.unmet() + infinite(a, (("G", "3"), ("distance", "start"))) + uneven
    G = math.inf if a.G is None else a.G
    if not unmet and (a.mu - a.pull) ** 2 * a.distance > G**2 * ROUNDING:
        least = (a.mu - a.pull) * math.sqrt(a.distance)
        unmet += (f"(3) G >= {least:.6g}, the least that |grad f| can be at theta_0: G is {G:.6g}",)
    if unmet:
        return Theorem(name, E, scheme, k, beta, gamma, math.inf, {"mu_tilde": a.mu_tilde}, unmet, printed)
    mu, first = a.mu_tilde, beta / gamma
    unmet = unmet_steps(beta, gamma, mu, E)
    s2 = min(a.sigma, G) ** 2  # (3) implies (2.5) with sigma = G.
    c1, c2 = descent_c1(a), 4.0 * (s2 + a.L**2 * (1.0 + a.eps_max) ** 2)
    c7, c8 = 4.0 * (E - 1) ** 2 * G**2, 2.0 * s2 + 4.0 * chance * E**2 * G**2
    if printed:
        c7, c1 = 4.0 * (E - 1) * G**2, c1 * (a.L if name == "D.8" else 1.0)
        unmet += unmet_first(beta / (gamma + 1.0), 1.0 / (4.0 * a.L), "1 / (4 L)")  # eta_1
        one_step = (1.0 - mu * first) * a.distance + (c8 if E == 1 else 2.0 * s2) * first**2
        floor, rest = (gamma + 1.0) * one_step, beta * a.mu - 1.0
    else:
        unmet += unmet_first(first, mu / c2, "mu_tilde / c2")
        floor, rest = gamma * a.distance, beta * mu - 1.0
    top = c2 * c7 * beta**4 / gamma**2 + c1 * c7 * beta**3 / gamma + c8 * beta**2
    v = math.inf if unmet else max(top / rest, floor)
    constants = {"mu_tilde": mu, "c1": c1, "c2": c2, "c7": c7, "c8": c8}
    return Theorem(name, E, scheme, k, beta, gamma, v, constants, unmet, printed)

"""Biased selection, cyclic participation and unequal local work: speed, bias and where training settles.

Joshi (slides), on FedNova, power-of-choice and cyclic participation. Functions named `orders` return the expression in
a slide's O(.), with constant 1; the others have constants and proofs.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from performative._base.arguments import Count, NonNegative, Values, checked
from performative.theory.bound import AbstractAssumptions, Bound, broken, check_steps, unroll
from performative.theory.index import numbered

CAUSES = "transient noise bias"


# Unequal work.


@numbered("joshi2023", "mismatched objective", "weights of the objective that FedAvg minimizes")
@checked
def objective_weights(weights: Values, local_steps: Values) -> np.ndarray:
    """FedAvg's w_i = p_i tau_i / sum p tau, of the objective that it actually minimizes; FedNova's are p_i.

    The limit of small steps, and exact if all clients have the same curvature and one step (see `settled_point`).
    """
    p, tau = _read_work(weights, local_steps)
    return p * tau / (p @ tau)


@numbered("joshi2023", "FedNova, tau_eff", "sum p_i tau_i")
@checked
def effective_steps(weights: Values, local_steps: Values) -> float:
    """FedNova's tau_eff = sum p_i tau_i."""
    p, tau = _read_work(weights, local_steps)
    return float(p @ tau)


def _read_work(weights: Any, local_steps: Any) -> tuple[np.ndarray, np.ndarray]:
    """p_i and tau_i, one of each per client."""
    p, tau = np.asarray(weights, np.float64), np.asarray(local_steps, np.float64)
    if p.ndim != 1 or p.shape != tau.shape or not np.all(tau >= 1) or not np.all(p >= 0):
        raise ValueError(f"local_steps must contain one tau_i >= 1 for each weight p_i >= 0; got {local_steps}.")
    if not p.sum() > 0:
        raise ValueError(f"weights: at least one client must have positive weight; got {weights}.")
    return p, tau


@numbered("joshi2023", "mismatched objective, bound", "|grad F|^2 where FedAvg settles")
@checked
def inconsistency(weights: Values, local_steps: Values, dissimilarity: float) -> float:
    """|grad F|^2 at the minimizer of FedAvg's objective is at most chi^2 times sum_i w_i |grad F_i|^2 there.

        chi^2 = sum_i (p_i - w_i)^2 / w_i

    Args:
        dissimilarity: sum_i w_i |grad F_i|^2 at that point. By Cauchy-Schwarz: grad F = sum (p_i - w_i) grad F_i there.

    Compare Wang et al. 2020 (FedNova), Theorem 2. 0 if all do the same work, and for FedNova.
    """
    p, w = np.asarray(weights, np.float64), objective_weights(weights, local_steps)
    inside = w > 0
    return float(np.sum((p - w)[inside] ** 2 / w[inside])) * dissimilarity


# Selection by loss.


@dataclasses.dataclass(frozen=True)
class SelectionAssumptions(AbstractAssumptions):
    """The assumptions of the rate under biased selection.

    Attributes:
        mu: each F_i is convex and F is mu-strongly convex
        G: E |g|^2 <= G^2 for the averaged direction of a round
        rho_bar, rho_tilde: the selection skew; with one local step per round the smallest rho(x, x) serves as rho_bar
        Gamma: min F - sum_i p_i min F_i >= 0, how far the clients' minima are apart
        distance: |x_0 - x*|^2

    Differs from the slide: its rho_bar is the smallest rho(x, x') over all pairs of models, selected at x and evaluated
    at x' (as in `pf.selection_skew`). That is 0 if a single client is selected at some x, such as the one with the
    highest loss: let x' be its optimum. The bound is then vacuous. The proof needs x' = x, as long as selections are
    not stale, and then selection of high losses has rho_bar >= 1.
    """

    mu: NonNegative
    G: NonNegative
    rho_bar: NonNegative
    rho_tilde: NonNegative
    Gamma: NonNegative
    distance: NonNegative

    @property
    def bias(self) -> float:
        """Gamma (rho_tilde / rho_bar - 1): how far F can stay above its minimum; inf if rho_bar = 0."""
        if self.Gamma == 0:
            return 0.0
        return self.Gamma * max(0.0, self.rho_tilde / self.rho_bar - 1.0) if self.rho_bar > 0 else math.inf


@numbered("joshi2023", "selection skew", "E |x_t - x*|^2 under any choice of clients")
@checked
def biased_selection(given: SelectionAssumptions, eta: Values) -> Bound:
    """E |x_t - x*|^2 at t = 0, ..., T for any client selection, one local step per round.

        e_{t+1} <= max(0, 1 - rho_bar mu eta) e_t + 2 eta rho_bar Gamma (rho_tilde / rho_bar - 1) + eta^2 G^2

    Args:
        eta: the step sizes of t = 0, ..., T - 1. The term `bias` is what no step size removes.

    With steps c / t, c rho_bar mu > 1, this is the slide's O(1 / (T rho_bar)) + O(Gamma (rho_tilde / rho_bar - 1)); for
    F itself the second has the constant 1 (`selection_floor`). Proof: convexity gives <x - x*, sum w_i grad F_i> >= sum
    w_i (F_i(x) - F_i(x*)) for the weights w of the selection at x. By the definition of the skew that is at least
    rho_bar (F(x) - min F + Gamma) - rho_tilde Gamma. More local steps add a drift.
    """
    eta, mu = check_steps(eta), given.mu
    unmet = broken(
        (given.rho_bar > 0, "rho_bar > 0: at some model only clients at their own optimum are selected"),
        (mu > 0, "mu > 0: F must be strongly convex"),
    )
    if unmet:
        return Bound.nothing(CAUSES, unmet, len(eta))
    keep = np.maximum(0.0, 1.0 - given.rho_bar * mu * eta)
    push = 2.0 * eta * given.rho_bar * given.bias
    start = unroll(keep, 0 * eta, given.distance)
    return Bound.by(CAUSES, start, unroll(keep, eta**2 * given.G**2), unroll(keep, push))


@numbered("joshi2023", "selection skew, bias", "F(x_inf) - min F <= Gamma (rho_tilde / rho_bar - 1)")
@checked
def selection_floor(given: SelectionAssumptions) -> float:
    """F(x_inf) - min F <= Gamma (rho_tilde / rho_bar - 1) wherever the selected gradients balance, for convex F_i.

    There x_inf minimizes sum w_i F_i, so rho_bar (F(x_inf) - min F + Gamma) <= sum w_i (F_i(x_inf) - min F_i) <=
    rho_tilde Gamma. The slide's second term, with constant 1. With ties the weights are a mixture of neighboring ones.
    """
    return given.bias


@numbered("joshi2023", "selection skew, orders", "what stands in the slide's O(.)")
@checked
def selection_orders(given: SelectionAssumptions, rounds: Count) -> tuple[float, float]:
    """The expressions in the slide's O(.): 1 / (T rho_bar) and Gamma (rho_tilde / rho_bar - 1)."""
    return (1.0 / (rounds * given.rho_bar) if given.rho_bar > 0 else math.inf), given.bias


# Cyclic participation.


@dataclasses.dataclass(frozen=True)
class CyclicAssumptions(AbstractAssumptions):
    """The assumptions of the rate of cyclic participation; equal groups, equal weights, local GD.

    Attributes:
        mu, L: F satisfies PL with mu and is L-smooth, kappa = L / mu; gap: F(x_0) - min F
        alpha: bound of |grad F - gradient of a group|; gamma: bound of |grad F_i - gradient of its group|
        clients: m; groups: K-bar; participants: C m, drawn from the group whose turn it is
    """

    mu: NonNegative
    L: NonNegative
    gap: NonNegative
    alpha: NonNegative
    gamma: NonNegative
    clients: Count
    groups: Count
    participants: Count


@numbered("joshi2023", "cyclic participation", "orders of F(x_T) - min F; constants hidden")
@checked
def cyclic_orders(given: CyclicAssumptions, rounds: Count) -> tuple[tuple[float, float, float], tuple[str, ...]]:
    """The terms of the slide's bound on F(x_T) - min F: start, groups, draws within a group; and what is unmet.

        K^2 gap / (m T^2),   kappa^2 (K - 1)^2 alpha^2 / (mu T^2),
        K kappa gamma^2 / (mu C T) (1 / K - C) / (m / K - 1),        K the number of groups

    Constants and logarithms are hidden. Differs from the slide: the last factor is hard to read there ("1 - l - C"); 1
    / K - C makes it the variance of a mean over C m of m / K clients, and 0 if all of a group participate. For groups
    of unequal weight no rate of this kind holds: the point itself moves (`cycle_point`).
    """
    a, K, m, T = given, given.groups, given.clients, rounds
    k, C = a.participants, a.participants / m
    unmet = broken(
        (m % K == 0, f"groups of equal size: {m} clients do not divide into {K} groups"),
        (
            a.participants * K <= m,
            f"C <= 1 / K-bar: {k} participants are more than a group of {m / K:.4g}",
        ),
        (a.mu > 0, "mu > 0: F must satisfy the PL condition"),
    )
    if unmet:
        return (math.inf, math.inf, math.inf), unmet
    kappa, one = a.L / a.mu, m == K
    draws = 0.0 if one else K * kappa * a.gamma**2 / (a.mu * C * T) * (1.0 / K - C) / (m / K - 1.0)
    return (K**2 * a.gap / (m * T**2), kappa**2 * (K - 1) ** 2 * a.alpha**2 / (a.mu * T**2), draws), ()

"""FedAvg and its remedies on heterogeneous clients: the slides' rates, with explicit constants.

    x <- x - eta / |S| sum_{i in S} sum_{k < tau} g_i(x_ik),     F = sum_i F_i / m

Joshi, "Heterogeneity-aware Algorithms for Federated Optimization" (slides). The slides print O(.): printed=True is the
expression in it, with constant 1, of which only the order is meaningful. Without it: a bound with constants, proved in
the docstring or in an adjacent comment. All rates are for static data; with reacting data they hold for the decoupled
gradients if these are gradients of some F_i (always with one parameter).
"""

import dataclasses
import math
from typing import Any

import numpy as np

from performative._base.arguments import Count, NonNegative, Positive, Values, checked
from performative._base.messages import coded
from performative.theory.bound import AbstractAssumptions, Bound, broken
from performative.theory.index import numbered

CAUSES = "transient noise participation drift"


@dataclasses.dataclass(frozen=True)
class FederatedAssumptions(AbstractAssumptions):
    """The assumptions of the rates, as numbers.

    Attributes:
        L: each F_i is L-smooth; sigma: E |g_i - grad F_i|^2 <= sigma^2, independent each time
        sigma_g: sum_i |grad F_i - grad F|^2 / m <= sigma_g^2, at every model visited
        gap: F(x_0) - min F; clients: m, with equal weights
    """

    L: Positive
    sigma: NonNegative
    sigma_g: NonNegative
    gap: NonNegative
    clients: Count


@numbered("joshi2023", "client drift; partial participation", "mean E |grad F|^2 of FedAvg, four terms, with constants")
@checked
def fedavg(
    given: FederatedAssumptions, eta: Positive, local_steps: Count, rounds: Count, participants: Count | None = None,
    printed: bool = False,
) -> Bound:  # fmt: skip
    """min_{t < T} E |grad F(x_t)|^2 (in fact the mean over t) of FedAvg with tau local steps.

        4 gap / (eta tau T) + [4 eta L sigma^2 / (C m) + 4 A eta^2 L^2 (tau - 1) sigma^2]
        + 8 eta tau L w sigma_g^2 + 8 A eta^2 L^2 tau (tau - 1) sigma_g^2
        w = (1 - C) / (C (m - 1)),   A = 1 + 4 eta tau L w

    Args:
        participants: C m clients per round, drawn uniformly; None: all

    Terms: transient (what remains of the start), noise (sampling), participation (who was drawn), drift (local steps).
    The slide's four terms, with constants (it has 1 for each, in O(.)). Needs eta tau L <= 1/2 and 8 A eta^2 L^2 tau
    (tau - 1) <= 1. With h = eta tau, d_i the mean gradient on client i's path and D = mean |d_i - grad F_i(x)|^2:
    - smoothness: E F' <= F - h/2 |grad F|^2 + h/2 D + L h^2 (w (2 sigma_g^2 + 2 D) + sigma^2 / (tau C m)), h L <= 1/2;
    - the paths: D <= 4 q |grad F|^2 + 4 q sigma_g^2 + 2 eta^2 L^2 (tau - 1) sigma^2, q = eta^2 L^2 tau (tau - 1) <=
    1/4; insert the second into the first and sum over t. `quadratic_floor` has the limits for one parameter.
    """
    m, tau = given.clients, local_steps
    K = check_participants(m, participants)
    L, s2, g2, w = given.L, given.sigma**2, given.sigma_g**2, participation_variance(m, K)
    q = (eta * L) ** 2 * tau * (tau - 1)
    start, sampled, walked = given.gap / (eta * tau * rounds), eta * L * s2 / K, (eta * L) ** 2 * (tau - 1) * s2
    drawn, apart = eta * tau * L * w * g2, q * g2
    A = 1.0 + 4.0 * eta * tau * L * w
    unmet = broken(
        (eta * tau * L <= 0.5 * (1 + 1e-12), f"eta tau L <= 1/2: it is {eta * tau * L:.4g}"),
        (8.0 * A * q <= 1.0 + 1e-12, f"8 (1 + 4 eta tau L w) eta^2 L^2 tau (tau - 1) <= 1: it is {8 * A * q:.4g}"),
    )
    if printed:
        return Bound.by(CAUSES, start, sampled + walked, drawn, apart, unmet=unmet)
    if unmet:
        return Bound.nothing(CAUSES, unmet)
    return Bound.by(CAUSES, 4 * start, 4 * sampled + 4 * A * walked, 8 * drawn, 8 * A * apart)


@checked
def participation_variance(clients: Count, participants: Count) -> float:
    """(1 - C) / (C (m - 1)) = (m - K) / (K (m - 1)): the variance of a mean over K of m, drawn uniformly."""
    m, K = clients, check_participants(clients, participants)
    return (m - K) / (K * (m - 1)) if m > 1 else 0.0


def check_participants(clients: int, participants: int | None) -> int:
    """K of m clients, None for all."""
    K = clients if participants is None else participants
    if not 1 <= K <= clients:
        raise ValueError(f"participants must be a whole number from 1 to {clients}, or None for all; got {K}.")
    return K


@numbered("joshi2023", "FedVARP", "the same without participation; constants hidden")
@checked
def fedvarp(
    given: FederatedAssumptions, eta: Positive, local_steps: Count, rounds: Count, participants: Count,
    printed: bool = False,
) -> Bound:  # fmt: skip
    """FedVARP: FedAvg's *orders* without the participation term. Constants are hidden: only the order is meaningful.

    Differs from the slide, unless printed=True: it removes the drift as well, which remains. Without noise FedVARP
    settles where FedAvg with all clients does (`quadratic_floor`), not at the optimum. It tolerates only smaller steps
    than FedAvg: with one of ten identical clients per round it diverges at eta tau L = 1.2, FedAvg only from 2.
    """
    found = fedavg(given, eta, local_steps, rounds, participants, printed=True)
    kept = {"participation": 0.0, "drift": 0.0 if printed else found.drift}
    return Bound({**found.terms, **kept}, found.unmet)


@numbered("joshi2023", "tuned step", "orders of noise, participation and drift; constants hidden")
@checked
def tuned_orders(local_steps: Count, rounds: Count, participants: Count) -> tuple[float, float, float]:
    """The slide's orders for eta ~ sqrt(M / (tau T)), M clients per round: noise, participation, drift.

        1 / sqrt(M tau T),   sqrt(tau / (M T)),   M tau / T

    Differs from the slide: it prints O(1 / T) for the drift. With this step eta^2 tau^2 is M tau / T: 1 / T in T alone.
    """
    M, tau, T = participants, local_steps, rounds
    return 1.0 / math.sqrt(M * tau * T), math.sqrt(tau / (M * T)), M * tau / T


@numbered("joshi2023", "FedExP", "the server step, and what it guarantees")
@checked
def extrapolation(squares: Values, mean_square: Values, eps: NonNegative = 0.0, printed: bool = False) -> Any:
    """FedExP's server step: max(1, mean_i |D_i|^2 / (2 (|mean D|^2 + eps))).

    Args:
        squares: |D_i|^2, [..., m]; mean_square: |mean_i D_i|^2

    If every client moves towards the optimum by at least its length, <D_i, x* - x> >= |D_i|^2 (projections on sets that
    all contain x*), then |x + s mean D - x*|^2 <= |x - x*|^2 - s (2 - s / s_max) mean |D_i|^2 for s_max = mean |D_i|^2
    / |mean D|^2 >= 1. Any s <= 2 s_max brings x closer; FedExP uses half of s_max. Differs from the slide, which prints
    one client's |D_i|^2 in the denominator: with the mean of these there, the step is always 1. If nobody moves the
    step is 1; if updates cancel and eps = 0 there is none.
    """
    squares, together = np.asarray(squares, np.float64), np.asarray(mean_square, np.float64)
    if squares.ndim < 1 or squares.shape[-1] < 1:
        raise ValueError(f"squares must contain |D_i|^2 of each client, [..., m]; got shape {squares.shape}.")
    if not (np.all(squares >= 0) and np.all(together >= 0)):
        raise ValueError("squares and mean_square must not be negative.")
    top = squares.mean(axis=-1)
    below = (top if printed else together) + eps
    if np.any((below <= 0) & (top > 0)):
        text = "the clients' updates cancel, so FedExP's step is unbounded; use eps > 0, as its authors do."
        raise ValueError(coded("unbounded-step", text))
    return np.maximum(1.0, np.where(top > 0, top, 0.0) / (2.0 * np.where(below > 0, below, 1.0)))

"""Theorem 5.10 and Corollary 5.11 on pricing, where the risk after every step is known exactly."""

import math

import numpy as np

from performative.papers.outcome import Outcome, over
from performative.papers.runs import power
from performative.theory import PricingDescent, corollary_5_11, lemma_c_1, mixture_sensitivity, theorem_5_10
from performative.theory.zheng2024 import PerformativeAssumptions, location_smoothness


def residual(
    demand: list[float], sensitivity: list[float], weights: list[float], start: float, eta: float, steps: int,
    bias: float, local_steps: int, relative: float,
) -> Outcome:  # fmt: skip
    """The exact gap of descent with a constant gradient error, against the bound as printed and as corrected."""
    shop = PricingDescent(demand, sensitivity, weights)
    begin = shop.optimum + start
    given = shop.assumptions(begin, start, bias)
    exact = shop.gaps(eta, steps, begin, bias=bias)
    printed = theorem_5_10(given, eta, steps, error=bias**2, printed=True).total
    corrected = theorem_5_10(given, eta, steps, error=bias**2).total
    clean = shop.gaps(eta, steps, begin)
    linear = given.gap * (1.0 - given.rho * eta) ** np.arange(steps + 1)
    rates = eta / 2.0 ** np.arange(3)
    floors = [shop.gaps(rate, round(steps * eta / rate), begin, bias=bias)[-1] for rate in rates]
    numbers = {
        "exponent_of_floor": power(rates, floors),
        "gap_over_printed_bound": float(np.max(exact / printed)),
        "gap_over_corrected_bound": float(np.max(exact / corrected)),
        "clean_gap_over_linear_rate": float(np.max((clean / linear)[1:])),
        "gap_over_linear_rate": float(np.max(exact / linear)),
        **_local_work(shop, begin, local_steps),
        **_smallest_gradient(shop, begin, eta, steps, bias, relative),
    }
    lines = {"exact": exact[1:], "bound, printed": printed[1:], "bound, corrected": corrected[1:]}
    return Outcome(numbers, {"gap": over(np.arange(1, steps + 1), lines)})


def _local_work(shop: PricingDescent, begin: float, local_steps: int) -> dict[str, float]:
    """The limit of training with R local steps: heterogeneous and identical clients."""
    alike = PricingDescent(np.full_like(shop.demand, 6.5), np.full_like(shop.demand, shop.gamma_bar), shop.weights)
    eta, steps = 0.05, 400 * local_steps
    return {
        "floor_one_local_step": float(shop.gaps(eta, steps, begin)[-1]),
        "floor_clients_alike": float(alike.gaps(eta, steps, begin, local_steps=local_steps)[-1]),
        "floor_clients_differ": float(shop.gaps(eta, steps, begin, local_steps=local_steps)[-1]),
    }


def _smallest_gradient(
    shop: PricingDescent, begin: float, eta: float, steps: int, bias: float, relative: float
) -> dict[str, float]:
    """The gap over the linear rate while the error is below g_min^2 / 2, and with a proportional error."""
    given, worst = shop.assumptions(begin, begin - shop.optimum), 0.0
    for error in (-bias, bias):  # against or along the descent
        off, t = begin - shop.optimum, 0
        while t < steps and bias**2 < (g := 2.0 * shop.gamma_bar * off + error) ** 2 / 2.0:
            off, t = off - eta * g, t + 1
            worst = max(worst, shop.gamma_bar * off**2 / (given.gap * (1.0 - given.rho * eta) ** t))
    bound = corollary_5_11(given, eta, steps, relative=relative).total
    factors = [1.0 - eta * 2.0 * shop.gamma_bar * (1.0 + sign * relative) for sign in (-1.0, 1.0)]
    gaps = [given.gap * factor ** (2.0 * np.arange(steps + 1)) for factor in factors]
    return {
        "gap_while_condition_holds_over_rate": worst,
        "proportional_gap_over_bound": float(np.max((np.asarray(gaps) / bound)[:, 1:])),
    }


def assumptions(gamma: float, demand: float, eta: float, alpha: list[float], strengths: list[float]) -> Outcome:
    """What the proof relies on: smoothness, PL of each client, Lemmas C.1 and C.3."""
    # Smoothness: one step of exact descent in pricing, against the inequality the proof starts from.
    x = demand / (2.0 * gamma) + 1.0
    g = 2.0 * gamma * x - demand

    def above(smooth: float) -> float:
        here, after = (-t * (demand - gamma * t) for t in (x, x - eta * g))
        return after - (here - eta * g**2 + smooth / 2.0 * eta**2 * g**2)

    weights, gammas = np.asarray(alpha), np.asarray(strengths)
    walked = np.where(np.arange(len(weights)) == 0, -1.0, 1.0)  # R = 2, eta G = 1: one step at full speed, apart
    apart = float(weights @ ((1.0 + gammas) ** 2 * (walked - weights @ walked) ** 2))
    given = PerformativeAssumptions(1.0, gammas, 1.0, 1.0, 1.0 + gammas, G=1.0, weights=weights)
    shop = PricingDescent([6.0, 7.0, 6.5], [1.0, 3.0, 2.0], [0.5, 0.2, 0.3])
    theta = shop.optimum + np.linspace(-5.0, 5.0, 1000)  # never the optimum itself
    slope, gap = 2.0 * shop.gamma_bar * (theta - shop.optimum), shop.gamma_bar * (theta - shop.optimum) ** 2
    numbers = {
        "above_with_printed_smoothness": above(1.0 + gamma),
        "above_with_two_gamma": above(float(location_smoothness(gamma, cross=1.0))),
        "stationary_point_above_minimum": _middle_above_minimum(),
        "pl_of_the_mean_over_rho": float(np.min(slope**2 / 2.0 / gap)) / (2.0 * shop.gamma_bar),
        "apart_over_printed_bound": apart / lemma_c_1(given, 1.0, 2, printed=True).total,
        "apart_over_corrected_bound": apart / lemma_c_1(given, 1.0, 2).total,
        "lemma_c_3_moved_over_bound": _mixture(),
    }
    return Outcome(numbers)


def _middle_above_minimum() -> float:
    """Two risks x^2 + 3 sin^2 x, one shifted by pi: each is PL, and their mean has a maximum in the middle."""
    x = np.linspace(-10.0, 10.0, 200_001)
    mean = np.mean([(x + at) ** 2 + 3.0 * np.sin(x + at) ** 2 for at in (math.pi / 2, -math.pi / 2)], axis=0)
    return float(mean[len(x) // 2] - mean.min())


def _mixture(points: int = 4001) -> float:
    """Lemma C.3: W_1 between two groups N(1, 1/4) and N(3, 1/4), shares 0.6 + theta/10, under two models."""
    from scipy.stats import wasserstein_distance

    atoms = np.linspace(-4.0, 4.0, points)
    density = np.exp(-(atoms**2) / 2.0)
    density /= density.sum()

    def law(theta: float, gamma: float) -> tuple[np.ndarray, np.ndarray]:
        values = [mean + gamma * theta + 0.5 * atoms for mean in (1.0, 3.0)]
        shares = (0.6 + 0.1 * theta, 0.4 - 0.1 * theta)
        return np.concatenate(values), np.concatenate([share * density for share in shares])

    ratios = []
    for gamma in (0.05, 0.3, -0.3):
        (first, p), (second, q) = law(0.5, gamma), law(1.5, gamma)
        ratios.append(wasserstein_distance(first, second, p, q) / mixture_sensitivity(abs(gamma), 2.0, 0.1))
    return max(ratios)

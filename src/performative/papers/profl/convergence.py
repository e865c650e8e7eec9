"""Theorem 5.10 and Corollary 5.11 on pricing, where the risk after every step is known exactly."""

import math

import numpy as np

from performative.papers.outcome import Outcome, over
from performative.theory import PricingDescent, corollary_5_11, lemma_c_1, mixture_sensitivity, theorem_5_10
from performative.theory.zheng2024 import PerformativeAssumptions, location_smoothness


def residual(
    demand: list[float], sensitivity: list[float], weights: list[float], start: float, eta: float, steps: int,
    bias: float, local_steps: int, relative: float,
) -> Outcome:  # fmt: skip
    """The exact gap of descent along a gradient with a constant error, beside the bound as printed and as corrected."""
    shop = PricingDescent(demand, sensitivity, weights)
    begin = shop.optimum + start
    given = shop.assumptions(begin, start, bias)
    exact = shop.gaps(eta, steps, begin, bias=bias)
    printed = theorem_5_10(given, eta, steps, error=bias**2, printed=True).total
    corrected = theorem_5_10(given, eta, steps, error=bias**2).total
    clean = shop.gaps(eta, steps, begin)
    linear = given.gap * (1.0 - given.rho * eta) ** np.arange(steps + 1)
    numbers = {
        "gap_over_printed_bound": float(np.max(exact / printed)),
        "gap_over_corrected_bound": float(np.max(exact / corrected)),
        "final_gap": float(exact[-1]),
        "printed_residual": float(printed[-1] - linear[-1]),
        "clean_gap_over_linear_rate": float(np.max(clean / linear)),
        **_local_work(shop, begin, local_steps),
        **_smallest_gradient(shop, begin, eta, steps, bias, relative),
    }
    lines = {"exact": exact, "bound, printed": printed, "bound, corrected": corrected}
    shown = {name: values[1:] for name, values in lines.items()}
    return Outcome(numbers, {"gap": over(np.arange(1, steps + 1), shown)})


def _local_work(shop: PricingDescent, begin: float, local_steps: int) -> dict[str, float]:
    """Where R local steps end, the start forgotten: clients that differ, and clients alike."""
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
    """How far the gap falls while the error is below g_min^2 / 2, and where an error in proportion ends."""
    model, held, floor = begin, shop.gamma_bar * (begin - shop.optimum) ** 2, bias**2 / (4.0 * shop.gamma_bar)
    for _ in range(steps):
        g = 2.0 * shop.gamma_bar * (model - shop.optimum) + bias
        if not bias**2 < g**2 / 2.0:
            break
        held = shop.gamma_bar * (model - shop.optimum) ** 2
        model -= eta * g
    given = shop.assumptions(begin, begin - shop.optimum)
    bound = corollary_5_11(given, eta, steps, relative=relative).total
    worst = []
    for sign in (-1.0, 1.0):  # the error pulls back, or pushes on
        factor = 1.0 - eta * 2.0 * shop.gamma_bar * (1.0 + sign * relative)
        worst.append(given.gap * factor ** (2.0 * np.arange(steps + 1)))
    return {
        "gap_while_condition_holds_over_floor": held / floor,
        "proportional_gap_over_bound": float(np.max(np.asarray(worst) / bound)),
        "proportional_final_gap": float(np.max(np.asarray(worst)[:, -1])),
    }


def assumptions(gamma: float, demand: float, eta: float, alpha: list[float], strengths: list[float]) -> Outcome:
    """What the proof takes for granted: smoothness, PL of each client, Lemmas C.1 and C.3."""
    # Smoothness: one step of exact descent in pricing, against the inequality that the proof begins with.
    x = demand / (2.0 * gamma) + 1.0
    g = 2.0 * gamma * x - demand
    after = _revenue_loss(x - eta * g, demand, gamma)
    here = _revenue_loss(x, demand, gamma)

    def above(smooth: float) -> float:
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
        **_local_pl(),
        "pl_of_the_mean_over_rho": float(np.min(slope**2 / 2.0 / gap)) / (2.0 * shop.gamma_bar),
        "apart": apart,
        "lemma_c_1_printed": lemma_c_1(given, 1.0, 2, printed=True).total,
        "lemma_c_1_corrected": lemma_c_1(given, 1.0, 2).total,
        **_mixture(),
    }
    return Outcome(numbers)


def _revenue_loss(theta: float, demand: float, gamma: float) -> float:
    return -theta * (demand - gamma * theta)


def _local_pl() -> dict[str, float]:
    """Two risks x^2 + 3 sin^2 x, one moved by pi: each is PL, and their mean has a maximum in the middle."""

    def value(x: np.ndarray) -> np.ndarray:
        return np.asarray(x**2 + 3.0 * np.sin(x) ** 2)

    x = np.linspace(-10.0, 10.0, 200_001)
    slope = 2.0 * x + 3.0 * np.sin(2.0 * x)
    inside = np.abs(x) > 1e-9
    pl = float(np.min(slope[inside] ** 2 / 2.0 / value(x[inside])))
    mean = (value(x + math.pi / 2) + value(x - math.pi / 2)) / 2.0
    middle = float(value(np.asarray(math.pi / 2)))
    return {"pl_of_each_client": pl, "stationary_point_above_minimum": middle - float(mean.min())}


def _mixture(points: int = 4001) -> dict[str, float]:
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
    for gamma in (0.0, 0.05, 0.3, -0.3):
        (first, p), (second, q) = law(0.5, gamma), law(1.5, gamma)
        ratios.append(wasserstein_distance(first, second, p, q) / mixture_sensitivity(abs(gamma), 2.0, 0.1))
    return {"lemma_c_3_moved_over_bound": max(ratios), "lemma_c_3_tightest": ratios[0]}


def contamination(clients: int, shares: list[float], outliers: list[float]) -> Outcome:
    """Where the performative gradient of contaminated data ends in pricing, in closed form.

    Mean demand (1 - e) (m - gamma theta) + e q asks for theta = m / (2 gamma) + e q / (2 (1 - e) gamma).
    """
    gamma = float(np.mean(1.0 + 2.0 * (np.arange(clients) + 0.5) / clients))

    def gap(e: float, q: float) -> float:
        return gamma * (e * q / (2.0 * (1.0 - e) * gamma)) ** 2

    e, q = np.asarray(shares), np.asarray(outliers)
    numbers = {
        "gap_few": gap(shares[0], outliers[0]),
        "gap_more": gap(shares[1], outliers[0]),
        "gap_farther": gap(shares[0], outliers[1]),
        "least_step_in_share": float(np.min(np.diff([gap(one, outliers[0]) for one in e]))),
        "least_step_in_distance": float(np.min(np.diff([gap(shares[0], one) for one in q]))),
    }
    return Outcome(
        numbers,
        {"gap": over(e, {f"outliers at {one:g}": [gap(share, one) for share in e] for one in q})},
    )

"""Lemmas 5.6 to 5.9, the sample size of Section 5.3 and the closed forms of Appendix D.2.2, against ground truth."""

import dataclasses
import math
from typing import Any

import numpy as np

from performative.papers.outcome import Outcome, mean, over
from performative.papers.profl.runs import ratio
from performative.papers.runs import power
from performative.theory import exact_jacobian_error, lemma_5_7, lemma_5_8, lemma_5_9, lemma_c_2
from performative.theory.zheng2024 import PerformativeAssumptions
from performative.theory.zheng2024 import sample_size as size_for

FREE = PerformativeAssumptions(1.0, 1.0, 1.0, 1.0)


def jacobian(window: int, samples: int, eta: float, steps: int, seed: int) -> Outcome:
    """The error of df/dtheta learned from a window, as a function of steps, window and samples."""
    from scipy.stats import norm

    rng = np.random.default_rng(seed)
    here = np.asarray([0.4, -0.3])
    moves = rng.standard_normal((window, 2))
    linear = dataclasses.replace(FREE, M=0.0, F=1.0, dimension=2)
    sizes = eta / 2.0 ** np.arange(steps)

    def curved(theta: np.ndarray) -> np.ndarray:
        return np.stack([np.sin(theta[..., 0]) + 0.5 * theta[..., 1], theta[..., 0] * theta[..., 1]], axis=-1)

    def straight(size: float, h: int = window) -> float:
        past = here + size * np.cumsum(moves[:h], axis=0)
        found = (curved(past) - curved(here)).T @ np.linalg.pinv((past - here).T)
        slope = np.asarray([[math.cos(here[0]), 0.5], [here[1], here[0]]])
        return float(np.sum((found - slope) ** 2))

    def bounds(printed: bool) -> np.ndarray:
        how: dict[str, Any] = {"window": window, "samples": samples, "variance": 1.0, "printed": printed}
        return np.asarray([lemma_5_7(linear, eta=size, reach=size * least, **how).total for size in sizes])

    walk = np.cumsum(moves, axis=0).T
    least = float(np.linalg.svd(walk, compute_uv=False).min())
    bends, noise = [straight(size) for size in sizes], [exact_jacobian_error(at * walk, 1.0, samples) for at in sizes]
    lines = {
        "curvature": bends,
        "sampling": noise,
        "bound on sampling, printed": bounds(True),
        "bound on sampling, corrected": bounds(False),
    }
    phi = 0.05
    numbers = {
        "curvature_error_long_steps": bends[0],
        "curvature_error_short_steps": bends[-1],
        "curvature_error_short_window": straight(sizes[0], 3),
        "exponent_of_error": power(sizes, noise),
        "exponent_of_printed_bound": power(sizes, bounds(True)),
        "exponent_of_corrected_bound": power(sizes, bounds(False)),
        "error_over_printed_bound": float(np.max(noise / bounds(True))),
        "allowed_share": phi,
        "share_beyond_printed": 2.0 * float(norm.sf(math.sqrt(math.log(2.0 / phi)))),
        "share_beyond_corrected": 2.0 * float(norm.sf(math.sqrt(2.0 * math.log(2.0 / phi)))),
    }
    return Outcome(numbers, {"error": over(sizes, lines)})


def terms(
    demand: float, gamma: float, theta: float, eta: float, window: int, samples: int, repeats: int, seed: int
) -> Outcome:
    """Both terms of the performative gradient in pricing with one price, and the errors of their estimates.

    z ~ N(m - gamma theta, 1), l = -theta z: the first term is -E z, the second gamma theta.
    """
    rng = np.random.default_rng(seed)
    level = demand - gamma * theta
    z = level + rng.standard_normal((repeats, samples))
    fitted = z.mean(axis=1)
    score = -theta * np.mean(z * (z - fitted[:, None]), axis=1)  # mean l s(z; f-hat), s = z - f
    known = -theta * np.mean(z * (z - level), axis=1)  # f known: the contribution of one sample is not centered
    past = theta - eta * level * np.arange(1, window + 1)  # models that walk by eta times the mean demand
    seen = demand - gamma * past + rng.standard_normal((repeats, window)) / math.sqrt(samples)
    apart = past - theta
    slope = (seen - fitted[:, None]) @ apart / (apart @ apart)
    first = (-fitted + level) ** 2
    learned, slope_known = ((slope * score - gamma * theta) ** 2, (-gamma * score - gamma * theta) ** 2)
    printed = lemma_5_8(FREE, samples=samples, variance=1.0, printed=True).total
    numbers = {
        "second_term_seen": mean(-gamma * known),
        "second_term": gamma * theta,
        "error_second_over_first": ratio(learned, first),
        "error_of_slope_over_rest": ratio(learned - slope_known, slope_known),
        "score_over_pathwise": _score_over_path(demand, gamma, seed),
        "first_error_over_printed": mean(first / printed),
        **_bounded_loss(seed, repeats),
    }
    return Outcome(numbers)


def _score_over_path(demand: float, gamma: float, seed: int, goods: int = 5, samples: int = 100_000) -> float:
    """Variance of one sample's score-function gradient over that of its pathwise gradient, in pricing.

    At the optimal prices, with f and df/dtheta known.
    """
    theta = np.full(goods, demand / (2.0 * gamma))
    noise = np.random.default_rng(seed).standard_normal((samples, goods))
    z = demand - gamma * theta + noise
    score = -z + gamma * (z @ theta)[:, None] * noise
    path = -z + gamma * theta  # samples move by -gamma, and the loss with them by -theta
    return float(score.var(axis=0).sum() / path.var(axis=0).sum())


def _bounded_loss(seed: int, repeats: int) -> dict[str, Any]:
    """Lemmas 5.9 and C.2 on an instance where their constants exist: l = tanh(z - theta), z ~ N(3 - gamma theta, 1)."""
    theta, gamma = 1.0, 1.5
    level, smooth = 3.0 - gamma * theta, 4 / (3 * math.sqrt(3))
    past = theta + np.asarray([0.3, -0.2, 0.5, 0.25, -0.4])
    soft = PerformativeAssumptions(smooth, gamma, 1.0, 1.0, F=gamma, M=0.0, l_max=1.0)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    steep = float(weights @ np.cosh(level + nodes - theta) ** -2.0 / weights.sum())  # E sech^2, and E l s by Stein

    def seen(samples: int, share: float, place: float) -> tuple[np.ndarray, ...]:
        """Squared errors of df/dtheta, the second term over clean samples and over outliers, and the whole gradient."""
        rng = np.random.default_rng(seed)

        def draw(at: float) -> tuple[np.ndarray, np.ndarray]:
            odd = rng.random((repeats, samples)) < share
            return np.where(odd, place, 3.0 - gamma * at) + rng.standard_normal((repeats, samples)), odd

        fitted = np.stack([draw(at)[0].mean(axis=1) for at in past], axis=1)
        z, odd = draw(theta)
        center, apart = z.mean(axis=1, keepdims=True), past - theta
        slope, pull = (fitted - center) @ apart / (apart @ apart), np.tanh(z - theta) * (z - center)
        clean = np.sum(~odd * pull, axis=1) / np.maximum(np.sum(~odd, axis=1), 1)
        outliers = np.sum(odd * pull, axis=1) / np.maximum(np.sum(odd, axis=1), 1)
        whole = -np.mean(np.cosh(z - theta) ** -2.0, axis=1) + slope * pull.mean(axis=1)
        errors = (slope + gamma, slope * clean + gamma * steep, slope * outliers, whole + (1.0 + gamma) * steep)
        return tuple(error**2 for error in errors)

    first = []
    for samples in (50, 200, 800):
        slope, clean, _, _ = seen(samples, 0.0, 0.0)
        bound = lemma_5_9(soft, slope.mean(), samples=samples, fisher=1.0, spread=1.0, printed=True).total
        first.append(mean(clean / bound))
    places = np.asarray([10.0, 20.0, 40.0, 80.0])
    over_printed: list[np.ndarray] = []
    over_corrected: list[np.ndarray] = []
    for place in places:
        slope, _, odd, _ = seen(50, 0.02, place)
        for found, told in ((over_printed, True), (over_corrected, False)):
            score = 1.0 + (place - level) ** 2
            bound = lemma_5_9(soft, slope.mean(), samples=50, fisher=1.0, outlier_score=score, printed=told).total
            found.append(odd / bound)
    batches = np.stack(over_printed).reshape(len(places), 10, -1).mean(axis=-1)
    slope, clean, odd, whole = seen(500, 0.2, 6.0)
    bound = lemma_c_2(
        soft, first=0.0, second=clean.mean(), contamination=0.2, outliers=odd.mean(), distance=6.0 - level, printed=True
    ).total
    return {
        "second_error_over_printed": max(first),
        "exponent_of_distance": mean([power(places - level, batch) for batch in batches.T]),
        "outlier_error_over_corrected": max(mean(found) for found in over_corrected),
        "gradient_error_over_lemma_c_2": mean(whole / bound),
    }


def sample_size(
    slope: float, curvature: float, gradient: float, loss: float, eta: float, window: int, reach: float,
    variance: float, confidence: float, tolerance: float, small_reach: float,
) -> Outcome:  # fmt: skip
    """Section 5.3: the error that the printed and the corrected number of samples leave."""
    given = dataclasses.replace(FREE, F=slope, M=curvature, G=gradient, l_max=loss)
    spread = variance * math.log(2.0 / confidence)
    common: dict[str, Any] = {"eta": eta, "window": window, "variance": variance, "confidence": confidence}

    def error(n: float, at: float, curvature: float = curvature) -> float:
        """l^2 (omega_F + f_phi F^2 / n), with omega_F of Lemma 5.7 (lambda, not eta lambda, in the noise)."""
        bends = curvature**2 * eta**4 * gradient**4 * window**6 / 2.0
        return loss**2 * ((bends + 2.0 * spread * window / n) / at**2 + spread * slope**2 / n)

    linear = dataclasses.replace(given, M=0.0)
    names = {"printed": True, "corrected": False}
    sizes = {name: size_for(linear, tolerance, reach=reach, printed=p, **common) for name, p in names.items()}
    close = size_for(given, tolerance, reach=small_reach, printed=True, **common)
    numbers = {
        "error_printed_over_tolerance": error(sizes["printed"], reach, 0.0) / tolerance,
        "error_corrected_over_tolerance": error(sizes["corrected"], reach, 0.0) / tolerance,
        "close_models_error_over_tolerance": error(close, small_reach) / tolerance,
    }
    return Outcome(numbers)


def two_groups(first: float, second: float, even: float) -> Outcome:
    """Appendix D.2.2: f_1 = (1 + theta) / 2, demands a_1 and a_2; roots and maxima found by search."""
    from scipy import optimize

    def demand(theta: float, a1: float, a2: float) -> float:
        share = (1.0 + theta) / 2.0
        return share * a1 + (1.0 - share) * a2

    stable = float(optimize.brentq(demand, -1.0, 1.0, args=(first, second)))
    best = optimize.minimize_scalar(
        lambda t: -t * demand(t, first, second), bounds=(-1.0, 1.0), method="bounded", options={"xatol": 1e-12}
    )
    formula = (first + second) / (first - second)
    revenue = {sign: [t * demand(t, sign * even, -sign * even) for t in (0.0, 0.5)] for sign in (1.0, -1.0)}
    numbers = {
        "theta_PS": stable,
        "theta_PS_printed": formula,
        "theta_PS_corrected": -formula,
        "theta_PO": float(best.x),
        "theta_PO_printed": formula / 2.0,
        "theta_PO_corrected": -formula / 2.0,
        "revenue_at_zero_above_elsewhere": revenue[1.0][0] - revenue[1.0][1],
        "revenue_at_zero_above_elsewhere_turned": revenue[-1.0][0] - revenue[-1.0][1],
    }
    return Outcome(numbers)

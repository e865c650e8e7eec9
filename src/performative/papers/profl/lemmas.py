"""Lemmas 5.6 to 5.9, the sample size of Section 5.3 and the closed forms of Appendix D.2.2, each against the truth."""

import dataclasses
import math
from typing import Any

import numpy as np

from performative.papers.outcome import Outcome, mean, over
from performative.theory import exact_jacobian_error, lemma_5_6, lemma_5_7, lemma_5_8, lemma_5_9
from performative.theory.zheng2024 import PerformativeAssumptions
from performative.theory.zheng2024 import sample_size as size_for

FREE = PerformativeAssumptions(1.0, 1.0, 1.0, 1.0)


def jacobian(window: int, samples: int, eta: float, steps: int, seed: int) -> Outcome:
    """The error of df/dtheta learnt from a window: what the steps, the window and the samples do to it."""
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

    def sampled(size: float) -> float:
        return exact_jacobian_error(size * np.cumsum(moves, axis=0).T, 1.0, samples)

    def bound(size: float, printed: bool) -> float:
        reach = float(np.linalg.svd(size * np.cumsum(moves, axis=0).T, compute_uv=False).min())
        return lemma_5_7(
            linear, eta=size, window=window, reach=reach, samples=samples, variance=1.0, printed=printed
        ).total  # fmt: skip

    bends, noise = [straight(size) for size in sizes], [sampled(size) for size in sizes]
    phi = 0.05
    lines = {
        "curvature": bends,
        "sampling": noise,
        "bound on sampling, printed": [bound(size, True) for size in sizes],
        "bound on sampling, corrected": [bound(size, False) for size in sizes],
    }
    numbers = {
        "curvature_error_long_steps": bends[0],
        "curvature_error_short_steps": bends[-1],
        "curvature_error_short_window": straight(sizes[0], 3),
        "sampling_error_long_steps": noise[0],
        "sampling_error_short_steps": noise[-1],
        "growth_of_error": noise[1] / noise[0],
        "growth_printed": bound(sizes[1], True) / bound(sizes[0], True),
        "growth_corrected": bound(sizes[1], False) / bound(sizes[0], False),
        "error_over_corrected_bound": max(e / bound(s, False) for e, s in zip(noise, sizes, strict=True)),
        "linear_map_error_many_samples": exact_jacobian_error(eta * moves.T, 1.0, 10**9),
        "allowed_share": phi,
        "share_beyond_printed": 2.0 * float(norm.sf(math.sqrt(math.log(2.0 / phi)))),
        "share_beyond_corrected": 2.0 * float(norm.sf(math.sqrt(2.0 * math.log(2.0 / phi)))),
    }
    return Outcome(numbers, {"error": over(sizes, lines)})


def terms(
    demand: float, gamma: float, theta: float, eta: float, window: int, samples: int, repeats: int, seed: int
) -> Outcome:
    """Both terms of the performative gradient in pricing with one price: what they are, and how far estimates are off.

    z ~ N(m - gamma theta, 1), l = -theta z: the first term is -E z, the second gamma theta.
    """
    rng = np.random.default_rng(seed)
    level = demand - gamma * theta
    z = level + rng.standard_normal((repeats, samples))
    fitted = z.mean(axis=1)
    score = -theta * np.mean(z * (z - fitted[:, None]), axis=1)  # mean l s(z; f-hat), s = z - f
    known = -theta * np.mean(z * (z - level), axis=1)  # f known: what one sample adds is not centered
    past = theta - eta * level * np.arange(1, window + 1)  # models that walk by eta times the mean demand
    seen = demand - gamma * past + rng.standard_normal((repeats, window)) / math.sqrt(samples)
    apart = past - theta
    slope = (seen - fitted[:, None]) @ apart / (apart @ apart)
    first = (-fitted + level) ** 2
    learnt, slope_known = ((slope * score - gamma * theta) ** 2, (-gamma * score - gamma * theta) ** 2)
    step = 1e-3
    risk = [-t * (demand - gamma * t) for t in (theta - step, theta + step)]
    numbers = {
        "first_plus_second": -level + gamma * theta,
        "slope_of_the_risk": (risk[1] - risk[0]) / (2 * step),
        "second_term_seen": mean(-gamma * known),
        "second_term": gamma * theta,
        "error_first": mean(first),
        "error_second": mean(learnt),
        "error_second_slope_known": mean(slope_known),
        "error_second_over_first": float(learnt.mean() / first.mean()),
        "share_of_error_from_slope": 1.0 - float(slope_known.mean() / learnt.mean()),
        **_score_and_path(demand, gamma, seed),
        **_first_term(samples),
        **_outliers(seed),
        **_extremes(),
    }
    return Outcome(numbers)


def _score_and_path(
    demand: float, gamma: float, seed: int, goods: int = 5, samples: int = 100_000
) -> dict[str, float]:  # fmt: skip
    """Variance of one sample's gradient in pricing at the optimal prices, f and df/dtheta known, in three forms."""
    theta = np.full(goods, demand / (2.0 * gamma))
    noise = np.random.default_rng(seed).standard_normal((samples, goods))
    z = demand - gamma * theta + noise
    loss = -(z @ theta)[:, None]
    forms = {
        "score": -z - gamma * loss * noise,
        "baseline": -z - gamma * (loss - loss.mean()) * noise,
        "path": -z + gamma * theta,  # samples move by -gamma, and the loss with them by -theta
    }
    variance = {name: float(values.var(axis=0).sum()) for name, values in forms.items()}
    return {
        "score_over_pathwise": variance["score"] / variance["path"],
        "score_with_baseline_over_pathwise": variance["baseline"] / variance["path"],
    }


def _first_term(samples: int, repeats: int = 4000) -> dict[str, float | tuple[float, float]]:
    z = np.random.default_rng(1).standard_normal((repeats, samples))
    errors = z.mean(axis=1) ** 2
    printed = lemma_5_8(FREE, samples=samples, variance=1.0, printed=True).total
    corrected = lemma_5_8(FREE, samples=samples, variance=1.0).total
    return {"first_error_over_printed": mean(errors / printed), "first_error_over_corrected": mean(errors / corrected)}


def _outliers(seed: int, repeats: int = 4000, samples: int = 50, share: float = 0.02) -> dict[str, float]:
    """The second term over outliers alone, l = tanh(z - theta), near and far from the data."""
    theta, gamma = 1.0, 1.5
    past = theta + np.asarray([0.3, -0.2, 0.5, 0.25, -0.4])
    apart = past - theta
    soft = PerformativeAssumptions(4 / (3 * math.sqrt(3)), gamma, 1.0, 1.0, F=gamma, M=0.0, l_max=1.0)

    def error(place: float) -> tuple[float, float]:
        rng = np.random.default_rng(seed)

        def draw(at: float) -> tuple[np.ndarray, np.ndarray]:
            odd = rng.random((repeats, samples)) < share
            clean = 3.0 - gamma * at + rng.standard_normal((repeats, samples))
            return np.where(odd, place + rng.standard_normal((repeats, samples)), clean), odd

        seen = np.stack([draw(at)[0].mean(axis=1) for at in past], axis=1)
        z, odd = draw(theta)
        center = z.mean(axis=1)
        slope = (seen - center[:, None]) @ apart / (apart @ apart)
        pulled = np.sum(odd * np.tanh(z - theta) * (z - center[:, None]), axis=1) / np.maximum(odd.sum(axis=1), 1)
        found = float(np.mean((slope * pulled) ** 2))
        # omega_F from the errors of the slope themselves: what is tested here is what becomes of it.
        omega_f = float(np.mean((slope + gamma) ** 2))
        scores = 1.0 + (place - (3.0 - gamma * theta)) ** 2
        return found, found / lemma_5_9(soft, omega_f, samples=samples, fisher=1.0, outlier_score=scores).total

    near, far = error(3.5), error(50.0)
    return {"outlier_error_growth": far[0] / near[0], "outlier_error_over_corrected": max(near[1], far[1])}


def _extremes() -> dict[str, float]:
    """G of pricing, |grad l| = |z|, with normal data and with data in an interval."""

    def gradient(theta: np.ndarray, z: np.ndarray) -> np.ndarray:
        return np.abs(z[:, 0])

    normal = lemma_5_6((0.0, 5.0), (-math.inf, math.inf), gradient=gradient)
    bounded = lemma_5_6((0.0, 5.0), (0.0, 10.0), gradient=gradient)
    return {"largest_gradient_normal_data": normal.G, "largest_gradient_bounded_data": bounded.G}


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
    close = {name: size_for(given, tolerance, reach=small_reach, printed=p, **common) for name, p in names.items()}
    numbers = {
        "samples_printed": sizes["printed"],
        "samples_corrected": sizes["corrected"],
        "error_printed_over_tolerance": error(sizes["printed"], reach, 0.0) / tolerance,
        "error_corrected_over_tolerance": error(sizes["corrected"], reach, 0.0) / tolerance,
        "close_models_samples_printed": close["printed"],
        "close_models_samples_needed": close["corrected"],
        "close_models_error_over_tolerance": error(close["printed"], small_reach) / tolerance,
        "close_models_error_any_n_over_tolerance": error(math.inf, small_reach) / tolerance,
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
    drawn = float(optimize.brentq(demand, -1.0, 0.9, args=(even, -even)))
    flat = float(optimize.brentq(lambda t: demand(t, even, -even) + t * even, -1.0, 0.9))  # slope of the revenue
    lost = [t * demand(t, even, -even) for t in (drawn, 0.5)]
    turned = [t * demand(t, -even, even) for t in (drawn, 0.5)]
    numbers = {
        "stable_point": stable,
        "stable_printed": formula,
        "stable_corrected": -formula,
        "optimal_point": float(best.x),
        "optimal_printed": formula / 2.0,
        "optimal_corrected": -formula / 2.0,
        "stable_minus_optimal": abs(stable - float(best.x)),
        "even_stable_minus_optimal": abs(drawn - flat),
        "revenue_there_above_elsewhere": lost[0] - lost[1],
        "revenue_there_above_elsewhere_turned": turned[0] - turned[1],
    }
    return Outcome(numbers)

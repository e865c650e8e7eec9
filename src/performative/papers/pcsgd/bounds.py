"""The theorems on PCSGD, on the quadratic: limits are roots there, and bounds can be held against runs."""

import math
from typing import Any

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from performative.papers.outcome import Outcome, lay_out, over, thinned
from performative.papers.pcsgd.watching import Runs
from performative.papers.runs import given, power
from performative.theory import (
    ClippedAssumptions,
    ClippedQuadratic,
    bias_bound,
    clip_pull,
    gradient_change,
    harmonic_kappa,
    one_step,
    optimal_clip,
    optimal_clip_limit,
    optimal_step,
    pcsgd,
)


def lower_bound(
    p: float, a: float, b: float, beta: float, clip: float, betas: list[float], start: float, step: float, rounds: int
) -> Outcome:
    """Theorem 3.5: roots of the mean gradient, clipped and not, against the formulas."""
    q = ClippedQuadratic(p, a, b, beta)

    def mean_gradient(theta: float) -> float:
        return p * (q.mu_tilde * theta + a * b) + (1 - p) * q.mu_tilde * theta

    grid = np.linspace(-50, 50, 100_001)
    # With the mean gradient a clip changes the length only.
    theta = start
    for _ in range(rounds):
        theta -= step * float(np.clip(mean_gradient(theta), -clip, clip))

    def risk(theta: float) -> float:
        """E of the loss under D(theta)."""
        few, many = (theta + a * (value - beta * theta) for value in (b, 0.0))
        return (p * few**2 + (1 - p) * many**2) / 2

    h = 1e-4
    gap = np.asarray([1 - a * one for one in betas])
    biases = np.asarray([ClippedQuadratic(p, a, b, one).squared_bias(clip) for one in betas])
    # G held fixed, as in (13): what is compared is the power of mu - L beta.
    uppers = np.asarray([bias_bound(ClippedAssumptions(1.0, a, one, 15.0, 1.0), clip, printed=True) for one in betas])
    numbers = {
        "stable_root": brentq(mean_gradient, -50, 50, xtol=1e-14),
        "stable_printed": -p * a / q.mu_tilde,
        "stable_corrected": q.stable,
        "clipped_root": brentq(q.mean_clipped, -50, 50, args=(clip,), xtol=1e-14),
        "clipped_printed": -p * clip / ((1 - p) * q.mu_tilde),
        "roots": float(np.sum(np.diff(np.sign(q.mean_clipped(grid, clip))) != 0)),
        "stable_distance": abs(q.stable),
        "radius_printed": q.radius(clip, printed=True),
        "radius_corrected": q.radius(clip),
        "power_of_the_bias": power(gap, biases),
        "power_of_the_bound": power(gap, uppers),
        "deterministic_end": theta,
        "slope_of_the_risk": abs(risk(q.stable + h) - risk(q.stable - h)) / (2 * h),
        "bias_without_clipping": q.squared_bias(q.mu_tilde * 10 + a * b),
    }
    return Outcome(numbers, {"bias": over(betas, {"squared bias, exactly": biases, "8 C1 / mu~^2 at G = 15": uppers})})


@given(Runs)
def upper_bound(s: Runs, box: float, horizon: int) -> Outcome:
    """Theorem 3.4 against runs, its lemmas at every model, Corollary 3.7 against a minimizer."""
    q, eta, clip, sigma = s.quadratic(s.beta), s.eta, s.clip, s.sigma
    known = q.assumptions(box, s.start)
    square = simulate(q, s, box)
    measured, error = square.mean(axis=1), square.std(axis=1, ddof=1) / math.sqrt(s.repeats)
    printed, ours = (pcsgd(known, clip, eta, sigma, form=form).total for form in ("printed", "closed"))
    sharp = pcsgd(known, clip, eta, sigma, q.excess(clip, box)).total
    tuned = optimal_step(known, clip, horizon, sigma, printed=True).step or 0.0
    best = minimize_scalar(
        lambda g: (1 - q.mu_tilde * g) ** horizon * known.distance
        + 2 * (2 * (clip**2 + known.G**2) + sigma**2) / q.mu_tilde * g,
        bounds=(0, 0.1), method="bounded", options={"xatol": 1e-12},
    ).x  # fmt: skip
    numbers = {
        "least_room": float(np.min(printed[1:] / (measured + 4 * error)[1:])),
        "least_room_corrected": float(np.min(sharp[1:] / (measured + 4 * error)[1:])),
        "looseness": float(printed[-1] / measured[-1]),
        "looseness_corrected": float(sharp[-1] / measured[-1]),
        "step_condition": float(np.max((eta[:-1] / eta[1:] - 1) / eta[1:]) / (q.mu_tilde / 2)),
        "largest_step": float(eta.max() * q.mu_tilde),
        "step_against_minimizer": abs(tuned / best - 1),
        "room_of_lemma_a_2": _change(q, box),
        **_lemmas(q, clip, box),
    }
    t = np.arange(1, s.rounds + 1)
    lines = {
        "measured": measured, "(12), as printed": printed, "with C1, not 8 C1": ours, "with E max(|g| - c, 0)": sharp
    }  # fmt: skip
    return Outcome(numbers, {"bound": lay_out({name: thinned(t, line[1:]) for name, line in lines.items()})})


def _change(q: ClippedQuadratic, box: float) -> float:
    """Least room of Lemma A.2 over pairs of models and of worlds; L is the larger of its two constants."""
    u, v = (part.ravel() for part in np.meshgrid(*[np.linspace(-box, box, 41)] * 2))
    L = max(1.0, q.a)
    left = abs(np.subtract.outer(u, u) - q.a * q.beta * np.subtract.outer(v, v))
    return float(np.min(gradient_change(L, q.beta, abs(np.subtract.outer(u, u)), abs(np.subtract.outer(v, v))) - left))


def _lemmas(q: ClippedQuadratic, clip: float, box: float) -> dict[str, float]:
    """Least room of Lemmas 5.1 and 5.2 over models of X, with theta_PS inside X and at its edge."""
    first, second, printed = [], [], []
    for radius in (box, abs(q.stable) / 2):
        stable = max(q.stable, -radius)
        known = ClippedAssumptions(1.0, q.a, q.beta, q.mu_tilde * radius + q.a * q.b, 1.0)
        theta, gamma = np.linspace(-radius, radius, 2001), 0.3
        square, after = (theta - stable) ** 2, np.zeros_like(theta)
        for share, value in ((q.p, q.a * q.b), (1 - q.p, 0.0)):
            moved = np.clip(theta - gamma * np.clip(q.mu_tilde * theta + value, -clip, clip), -radius, radius)
            after = after + share * (moved - stable) ** 2
        pull = (theta - stable) * (q.mean_clipped(theta, clip) - theta - q.a * (q.p * q.b - q.beta * stable))
        first.append(np.min(one_step(known, clip, gamma, square, pull) - after))
        second.append(np.min(clip_pull(known, clip, gamma, square) + 2 * gamma * pull))
        printed.append(np.min(clip_pull(known, clip, gamma, square, printed=True) + 2 * gamma * pull))
    return {
        "room_of_lemma_5_1": float(min(first)),
        "room_of_lemma_5_2": float(min(printed)),
        "room_of_lemma_5_2_corrected": float(min(second)),
    }


def simulate(q: ClippedQuadratic, s: Runs, box: float) -> np.ndarray:
    """Squared gaps of PCSGD, [T + 1, repeats], in plain NumPy: (9) as it stands."""
    rng = np.random.default_rng(s.seed)
    theta = np.full(s.repeats, s.start)
    rows = [theta]
    for gamma in s.eta:
        gradient = q.mu_tilde * theta + q.a * q.b * (rng.random(s.repeats) < q.p)
        noisy = np.clip(gradient, -s.clip, s.clip) + s.sigma * rng.standard_normal(s.repeats)
        theta = np.clip(theta - gamma * noisy, -box, box)
        rows.append(theta)
    return (np.stack(rows) - q.stable) ** 2


def optimal_clips(
    mu: float, L: float, betas: list[float], G: float, distance: float, phi: float, scale: float, offset: float,
    rounds: int, small_phi: float,
) -> Outcome:  # fmt: skip
    """Corollary 3.8 against minimizers of the bounds that it is drawn from."""
    low, high = (ClippedAssumptions(mu, L, beta, G, distance) for beta in betas)
    m = high.mu_tilde

    def printed_limit(c: float) -> float:
        # (12) as T grows: gamma_T = a_0 / T, d sigma^2 = c^2 phi T.
        return 2 * scale * phi * c**2 / m + 8 * (G - c) ** 2 / m**2

    kappa = harmonic_kappa(high, scale)
    eta = scale / (offset + 1 + np.arange(rounds))
    multiplier = math.sqrt(phi * rounds)

    def bound(c: float) -> float:
        return float(pcsgd(high, c, eta, c * multiplier).total[-1])

    def least(function: Any) -> float:
        return float(minimize_scalar(function, bounds=(1e-6, G), method="bounded", options={"xatol": 1e-9}).x)

    rarely = optimal_clip_limit(high, small_phi, 1.0, printed=True)
    # What the printed clip minimizes is (G - c)^2 / mu~^2 + phi c^2 / mu~.
    there = (G - rarely.clip) ** 2 / m**2 + small_phi * rarely.clip**2 / m
    clips = [optimal_clip(one, eta, multiplier).clip for one in (low, high)]
    numbers = {
        "clip_printed": optimal_clip_limit(high, phi, kappa, printed=True).clip,
        "clip_of_the_printed_bound": least(printed_limit),
        "clip_corrected": optimal_clip_limit(high, phi, kappa).clip,
        "clip_of_the_recursion": least(bound),
        "bias_over_printed": there / rarely.total,
        "bias_over_corrected": there / (G**2 * small_phi / (m * (1 + m * small_phi))),
        "clip_at_low_beta": clips[0],
        "clip_at_high_beta": clips[1],
    }
    return Outcome(numbers)

"""Theorem 3.4 and its corollaries on the quadratic: bounds against runs, lemmas on a grid of models, minimizers."""

import dataclasses
import math

import numpy as np
from scipy.optimize import brentq

from performative.papers.outcome import Outcome, lay_out, mean, over, thinned
from performative.papers.pcsgd.tradeoff import mean_square
from performative.papers.pcsgd.watching import Runs, simulate, unbiased_squares
from performative.papers.runs import given, power
from performative.theory import (
    ClippedAssumptions,
    ClippedQuadratic,
    clip_pull,
    gradient_change,
    one_step,
    optimal_clip,
    optimal_clip_limit,
    optimal_step,
    pcsgd,
)


@given(Runs)
def upper_bound(s: Runs, box: float, horizon: int, tuned: dict[str, float], horizons: list[int]) -> Outcome:
    """Theorem 3.4 against runs, its lemmas at every model, Corollary 3.7 against a minimizer and exact errors."""
    q, eta, clip, sigma = s.quadratic(s.beta), s.eta, s.clip, s.sigma
    known = q.assumptions(box, s.start)
    square, _, _ = simulate(q, s, eta, box=box)
    printed = pcsgd(known, clip, eta, sigma, form="printed")
    sharp = pcsgd(known, clip, eta, sigma, q.excess(clip, box)).total
    whole, _, _ = simulate(q, dataclasses.replace(s, clip=known.G), eta, box=box)
    slope = 2 * (2 * (clip**2 + known.G**2) + sigma**2) / q.mu_tilde
    # exp(-mu~ g T) D + slope g is minimal where its derivative is zero.
    best = brentq(
        lambda g: slope - horizon * q.mu_tilde * known.distance * math.exp(-q.mu_tilde * g * horizon), 0, 1, xtol=1e-16
    )
    numbers = {
        "largest_share": largest_share(square, printed.total),
        "largest_share_sharp": largest_share(square, sharp),
        "unclipped_over_step": mean(whole[-1] / eta[-1]),
        "unclipped_over_step_exact": float(unbiased_squares(q, eta, s.start, sigma)[-1] / eta[-1]),
        "conditions_unmet": float(len(printed.unmet)),
        "step_printed": optimal_step(known, clip, horizon, sigma, printed=True).step,
        "step_of_the_minimizer": best,
        "share_of_the_rate": max(_rate_share(s.start, box, T, **tuned) for T in horizons),
        "excess_of_lemma_a_2": _change(q, box),
        **_lemmas(q, clip, box),
    }
    t = np.arange(1, s.rounds + 1)
    lines = {
        "measured": square.T, "(12), as printed": printed.total, r"with $(E \max(|g| - c, 0))^2 / \tilde\mu^2$": sharp
    }  # fmt: skip
    return Outcome(numbers, {"bound": lay_out({name: thinned(t, line[..., 1:]) for name, line in lines.items()})})


def largest_share(square: np.ndarray, bound: np.ndarray) -> tuple[float, float]:
    """The largest mean of squares [T + 1, repeats] over its bound [T + 1] after the start, and its standard error."""
    shares = [mean(row / limit) for row, limit in zip(square[1:], bound[1:], strict=True)]
    return max(shares)


def _rate_share(start: float, box: float, T: int, p: float, a: float, b: float, beta: float, clip: float,
                phi: float) -> float:  # fmt: skip
    """E |theta_T - theta_PS|^2 with the step (15), exactly, over the expression inside Corollary 3.7's O(.)."""
    q = ClippedQuadratic(p, a, b, beta)
    known, sigma, m = q.assumptions(box, start), clip * math.sqrt(phi * T), q.mu_tilde
    step = float(optimal_step(known, clip, T, sigma, printed=True).step or 0.0)
    noise = (clip**2 + known.G**2) / (T * m**2) + clip**2 * phi / m**2
    order = (known.G - clip) ** 2 / m**2 + noise * math.log(m**2 / (phi * clip**2))
    return mean_square(q, start, step, clip, sigma, T) / order


def _change(q: ClippedQuadratic, box: float) -> float:
    """Largest gradient change less Lemma A.2's bound, over models and worlds; L is the larger of two constants."""
    u, v = (part.ravel() for part in np.meshgrid(*[np.linspace(-box, box, 41)] * 2))
    du, dv = np.subtract.outer(u, u), np.subtract.outer(v, v)
    allowed = gradient_change(max(1.0, q.a), q.beta, abs(du), abs(dv))
    return max(0.0, float(np.max(abs(du - q.a * q.beta * dv) - allowed)))


def _lemmas(q: ClippedQuadratic, clip: float, box: float) -> dict[str, float]:
    """Lemmas 5.1 and 5.2 over models in X, with theta_PS inside X and on its boundary."""
    first, second = [], []
    for radius in (box, abs(q.stable) / 2):
        stable = max(q.stable, -radius)
        known = ClippedAssumptions(1.0, q.a, q.beta, q.mu_tilde * radius + q.a * q.b, 1.0)
        theta, gamma = np.linspace(-radius, radius, 2001), 0.3
        square, after = (theta - stable) ** 2, np.zeros_like(theta)
        for share, value in ((q.p, q.a * q.b), (1 - q.p, 0.0)):
            moved = np.clip(theta - gamma * np.clip(q.mu_tilde * theta + value, -clip, clip), -radius, radius)
            after = after + share * (moved - stable) ** 2
        pull = (theta - stable) * (q.mean_clipped(theta, clip) - theta - q.a * (q.p * q.b - q.beta * stable))
        first.append(np.max(after - one_step(known, clip, gamma, square, pull)))
        second.append(np.max(-2 * gamma * pull / clip_pull(known, clip, gamma, square, printed=True)))
    return {"excess_of_lemma_5_1": max(0.0, float(max(first))), "share_of_lemma_5_2": float(max(second))}


def optimal_clips(
    mu: float, L: float, betas: list[float], G: float, distance: float, phi: float, scale: float, offset: float,
    rounds: int, phis: list[float],
) -> Outcome:  # fmt: skip
    """Corollary 3.8 against the minimizer of the bound it is derived from."""
    low, high = (ClippedAssumptions(mu, L, beta, G, distance) for beta in betas)
    m = high.mu_tilde

    def limit(c: float, phi: float) -> float:
        """(12) as T grows: gamma_T = a_0 / T, d sigma^2 = c^2 phi T."""
        return 2 * scale * phi * c**2 / m + 8 * (G - c) ** 2 / m**2

    def least(phi: float) -> float:
        return float(brentq(lambda c: 4 * scale * phi * c / m - 16 * (G - c) / m**2, 0, G, xtol=1e-14))

    biases = np.asarray([limit(least(one), one) for one in phis])
    orders = np.asarray([optimal_clip_limit(high, one, 1.0, printed=True).total for one in phis])
    eta = scale / (offset + 1 + np.arange(rounds))
    clips = [optimal_clip(one, eta, math.sqrt(phi * rounds)).clip for one in (low, high)]
    numbers = {
        "clip_printed": optimal_clip_limit(high, phi, 1.0, printed=True).clip,
        "clip_corrected": G / (1 + m * scale * phi / 4),
        "clip_of_the_bound": least(phi),
        "growth_over_the_order": power(phis[-2:], (biases / orders)[-2:]),
        "power_of_small_noise": power(phis[:2], biases[:2]),
        "clip_at_low_beta": clips[0],
        "clip_at_high_beta": clips[1],
    }
    lines = {"least of (12)": biases, r"$G^2 (1 + \phi / \tilde\mu)$": orders}
    return Outcome(numbers, {"bias": over(phis, lines)})

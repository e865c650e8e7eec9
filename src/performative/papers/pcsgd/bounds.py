"""The theorems on PCSGD, on the quadratic: limits are roots there, and bounds can be held against runs."""

import itertools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import brentq
from scipy.stats import wasserstein_distance

import performative as pf
from performative.papers.outcome import Outcome, lay_out, mean, over, thinned
from performative.papers.pcsgd.tradeoff import mean_square
from performative.papers.pcsgd.watching import Runs
from performative.papers.runs import given, power
from performative.theory import (
    ClippedAssumptions,
    ClippedQuadratic,
    bias_bound,
    clip_pull,
    gradient_change,
    one_step,
    optimal_clip,
    optimal_clip_limit,
    optimal_step,
    pcsgd,
)


def lower_bound(
    p: float, a: float, b: float, beta: float, clip: float, betas: list[float], beyond: float, box: float, start: float,
    step: float, rounds: int,
) -> Outcome:  # fmt: skip
    """Theorem 3.5: roots of the mean gradient, clipped and not, against the formulas."""
    q = ClippedQuadratic(p, a, b, beta)

    def pull(theta: Any, at: float = beta, c: float = math.inf) -> Any:
        u = (1 - a * at) * theta
        return p * np.clip(u + a * b, -c, c) + (1 - p) * np.clip(u, -c, c)

    def root(at: float = beta, c: float = math.inf) -> float:
        return float(brentq(pull, -1e3, 1e3, args=(at, c), xtol=1e-14))

    theta = start  # with the mean gradient a clip changes the length only
    for _ in range(rounds):
        theta -= step * float(np.clip(pull(theta), -clip, clip))

    def tilt(at: float, many: float, h: float = 1e-4) -> float:
        """|slope| of the performative risk: the few react by beta, the many by `many`."""
        few, rest = (theta + a * (value - by * theta)
                     for theta in [np.asarray([at + h, at - h])] for value, by in ((b, beta), (0.0, many)))  # fmt: skip
        return float(abs(np.diff((p * few**2 + (1 - p) * rest**2) / 2)[0]) / (2 * h))

    apart = -p * a * b / (1 - p * a * beta)
    biases = np.asarray([(root(at, clip) - root(at)) ** 2 for at in betas])
    numbers = {
        "stable_root": root(),
        "stable_printed": -p * a / q.mu_tilde,
        "stable_corrected": q.stable,
        "clipped_root": root(c=clip),
        "clipped_printed": -p * clip / ((1 - p) * q.mu_tilde),
        "roots": float(np.sum(np.diff(np.sign(pull(np.linspace(-50, 50, 100_001), c=clip))) != 0)),
        "stable_distance": abs(root()),
        "radius_printed": q.radius(clip, printed=True),
        "radius_corrected": q.radius(clip),
        "power_of_the_bias": power(1 - a * np.asarray(betas), biases),
        "bias_beyond": (root(beyond, clip) - root(beyond)) ** 2,
        "bias_beyond_exact": (p * (a * b - clip / (1 - p)) / (1 - a * beyond)) ** 2,
        "deterministic_end": theta,
        "slope_of_the_risk": tilt(root(), beta),
        "slope_elsewhere": tilt(apart, 0.0),
        "unclipped_root": root(c=q.assumptions(box, start).G),
        **_assumptions(q, box),
    }
    bound = [bias_bound(ClippedQuadratic(p, a, b, at).assumptions(box, start), clip, printed=True) for at in betas]
    lines = {"exact": biases, r"$8 C_1 / \tilde\mu^2$": bound}
    return Outcome(numbers, {"bias": over(betas, lines)})


def _assumptions(q: ClippedQuadratic, box: float) -> dict[str, float]:
    """Assumptions 3.1 to 3.3 of the library's own problem, by derivatives of its loss and distances of its samples."""
    problem = pf.cases.quadratic(q.beta, q.p, q.a, q.b, 100, box=box)
    theta, z = jnp.asarray([-box, 0.5, box]), jnp.asarray([0.0, q.b, -1.0])
    slope = jax.grad(problem.loss)
    within = jax.vmap(jax.grad(slope))(theta, z), jax.vmap(jax.grad(slope, argnums=1))(theta, z)
    people = eqx.tree_at(lambda every: every.z, problem.population, jnp.asarray(problem.population.z[0]))

    def people_under(at: float) -> np.ndarray:
        return np.asarray(jax.vmap(lambda row: people.sample(row, None, jnp.asarray(at)))(jnp.arange(100)), np.float64)

    worlds = {at: people_under(at) for at in (-box, 0.0, box)}
    apart = [
        wasserstein_distance(one, other) / abs(u - v)
        for (u, one), (v, other) in itertools.combinations(worlds.items(), 2)
    ]
    largest = max(float(np.abs(jax.vmap(slope, (None, 0))(jnp.asarray(at), jnp.asarray(one))).max())
                  for at, one in worlds.items())  # fmt: skip
    return {
        "curvature": float(within[0].min()),
        "slope_in_z": float(jnp.abs(within[1]).max()),
        "a": q.a,
        "beta": q.beta,
        "sensitivity": max(apart),
        "largest_gradient": largest,
        "G": q.assumptions(box, 0.0).G,
    }


@given(Runs)
def upper_bound(s: Runs, box: float, horizon: int, tuned: dict[str, float], horizons: list[int]) -> Outcome:
    """Theorem 3.4 against runs, its lemmas at every model, Corollary 3.7 against a minimizer and exact errors."""
    q, eta, clip, sigma = s.quadratic(s.beta), s.eta, s.clip, s.sigma
    known = q.assumptions(box, s.start)
    square = simulate(q, s, box)
    printed = pcsgd(known, clip, eta, sigma, form="printed")
    sharp = pcsgd(known, clip, eta, sigma, q.excess(clip, box)).total
    slope = 2 * (2 * (clip**2 + known.G**2) + sigma**2) / q.mu_tilde
    # exp(-mu~ g T) D + slope g is least where its derivative is zero.
    best = brentq(
        lambda g: slope - horizon * q.mu_tilde * known.distance * math.exp(-q.mu_tilde * g * horizon), 0, 1, xtol=1e-16
    )
    numbers = {
        "largest_share": largest_share(square, printed.total),
        "largest_share_sharp": largest_share(square, sharp),
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
    """E |theta_T - theta_PS|^2 with the step (15), exactly, over what Corollary 3.7 has within O(.)."""
    q = ClippedQuadratic(p, a, b, beta)
    known, sigma, m = q.assumptions(box, start), clip * math.sqrt(phi * T), q.mu_tilde
    step = float(optimal_step(known, clip, T, sigma, printed=True).step or 0.0)
    noise = (clip**2 + known.G**2) / (T * m**2) + clip**2 * phi / m**2
    order = (known.G - clip) ** 2 / m**2 + noise * math.log(m**2 / (phi * clip**2))
    return mean_square(q, start, step, clip, sigma, T) / order


def _change(q: ClippedQuadratic, box: float) -> float:
    """The most by which a change exceeds Lemma A.2, over models and worlds; L is the larger of its two constants."""
    u, v = (part.ravel() for part in np.meshgrid(*[np.linspace(-box, box, 41)] * 2))
    du, dv = np.subtract.outer(u, u), np.subtract.outer(v, v)
    allowed = gradient_change(max(1.0, q.a), q.beta, abs(du), abs(dv))
    return max(0.0, float(np.max(abs(du - q.a * q.beta * dv) - allowed)))


def _lemmas(q: ClippedQuadratic, clip: float, box: float) -> dict[str, float]:
    """Lemmas 5.1 and 5.2 over models of X, with theta_PS inside X and at its edge."""
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
    rounds: int, phis: list[float],
) -> Outcome:  # fmt: skip
    """Corollary 3.8 against the minimizer of the bound that it is drawn from."""
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

"""Theorem 4.3 on the quadratic instance: its bound against runs, its proof step by step."""

import math
from typing import Any

import numpy as np

from performative.papers.outcome import Outcome, lay_out, thinned
from performative.papers.pcsgd.bounds import largest_share
from performative.papers.pcsgd.watching import Runs, simulate
from performative.papers.runs import given, power
from performative.theory import ClippedQuadratic, DiceAssumptions, dice_model_error, dicesgd


@given(Runs)
def dice_bound(s: Runs, horizon: int, constant: float) -> Outcome:
    """DiceSGD in plain NumPy against (18), with decaying and constant steps, and what (18) relies on."""
    q, eta, long = s.quadratic(s.beta), s.eta, s.steps(horizon)
    gap, lagged, known = _held(q, s, eta)
    flat = np.full(s.rounds, constant)
    _, lagged_flat, known_flat = _held(q, s, flat)
    printed, ours = (dicesgd(known, eta, s.sigma, form) for form in ("printed", "recursion"))
    printed_flat = dicesgd(known_flat, flat, s.sigma, "printed").total
    steps = {"printed": _largest(long, 2), "corrected": _largest(long, 1)}
    numbers: dict[str, Any] = {
        "largest_share": largest_share(lagged, printed.total),
        "largest_share_constant": largest_share(lagged_flat, printed_flat),
        **{f"b_bar_{form}_early": values[0] for form, values in steps.items()},
        **{f"b_bar_{form}_late": values[1] for form, values in steps.items()},
        "lemma_a_1": max(_lemma(eta, q.mu_tilde / 4, k) for k in (1, 2, 3, 4)),
        "lemma_a_1_itself": _lemma_itself(),
        **_one_step(q),
        **_second_moment(q),
    }
    t = np.arange(1, s.rounds + 1)
    lines = {
        "measured": gap.T, "(18), as printed": dice_model_error(printed, known, eta),
        "corrected recursion": dice_model_error(ours, known, eta),
    }  # fmt: skip
    shown = {"bound": lines, "constant": {"measured": lagged_flat.T, "(18), as printed": printed_flat}}
    return Outcome(
        numbers,
        {
            name: lay_out({label: thinned(t, line[..., 1:]) for label, line in each.items()})
            for name, each in shown.items()
        },
    )


def _held(q: ClippedQuadratic, s: Runs, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray, DiceAssumptions]:
    """Squared gaps of theta and of theta - gamma e, and the theorem's constants with M set to the runs' memory."""
    gap, lagged, memory = simulate(q, s, eta, s.clip)
    return gap, lagged, q.dice_assumptions(s.start, math.sqrt(memory.mean(axis=1).max()))


def _largest(eta: np.ndarray, power: int) -> tuple[float, float]:
    """The smallest b_bar for gamma_t^2 / gamma_(t+1)^2 <= 1 + b_bar gamma_(t+1)^power: in 1% of the steps, in all."""
    needed = (eta[:-1] ** 2 / eta[1:] ** 2 - 1) / eta[1:] ** power
    return float(needed[: len(needed) // 100].max()), float(needed.max())


def _lemma(eta: np.ndarray, rate: float, k: int) -> float:
    """The left side of Lemma A.1's condition less 1, over its right side less 1: at most 1 if it is met."""
    return float(np.max(((eta[:-1] / eta[1:]) ** k - 1) / (rate / 2 * eta[1:] ** k)))


def _lemma_itself(steps: int = 3000) -> float:
    """The largest ratio of the two sides of (28), over steps that meet the lemma's condition as printed, a = 1."""
    t, worst = np.arange(1, steps + 1), 0.0
    for k in (1, 2, 3, 4):
        # (gamma_t / gamma_(t+1))^p = 1 + 1 / (5 + t), and 1 + gamma_(t+1)^p / 2 = 1 + 1.25 / (6 + t).
        falling = (2.5 / (5 + t)) ** (1 / k)
        for eta in (falling, np.full(steps, 0.01), np.full(steps, 0.5), np.full(steps, 1.9)):
            total = 0.0
            for gamma in eta.tolist():
                total = (1 - gamma) * total + gamma ** (k + 1)
                worst = max(worst, total / (2 * gamma**k))
    return worst


def _one_step(q: ClippedQuadratic) -> dict[str, float]:
    """Largest violation of (37), and of our version, by one exact step, over models, memories and steps."""
    x, e = (v.ravel() for v in np.meshgrid(np.linspace(-6, 6, 121), np.linspace(-9, 9, 121)))
    worst = {"printed": 0.0, "corrected": 0.0}
    # On the instance itself, and on one with nearly constant gradients.
    for one in (q, ClippedQuadratic(q.p, 1.0, 0.1, 0.0)):
        given = one.dice_assumptions(0.0, 1.0)
        for before, gamma in ((0.1, 0.1), (0.1, 0.099), (0.1, 0.05), (0.02, 0.01), (0.5, 0.4)):
            theta, after = one.stable + x + before * e, np.zeros_like(x)
            for share, value in ((one.p, one.a * one.b), (1 - one.p, 0.0)):
                moved = x + (before - gamma) * e - gamma * (one.mu_tilde * theta + value)
                after = after + share * moved**2
            for form, said in zip(worst, _said(given, x, e, before, gamma), strict=True):
                worst[form] = max(worst[form], float(np.max(after - said)))
    return {f"step_excess_{form}": value for form, value in worst.items()}


def _said(
    given: DiceAssumptions, x: np.ndarray, e: np.ndarray, before: float, gamma: float
) -> tuple[np.ndarray, np.ndarray]:
    """E |x'|^2 by (37), and as corrected (`performative.theory.dicesgd`), without noise."""
    mu, reach, drop = given.mu_tilde, given.L * (1 + given.beta), before - gamma
    noise = 2 * given.G**2 * gamma**2
    printed = (1 - mu * gamma + 2 * given.B**2 * gamma**2 + 4 * drop**2) * x**2 + noise
    printed = printed + (6 * drop**2 + 4 * reach**2 / mu * before**2 * gamma) * e**2
    ours = (1 - 1.5 * mu * gamma + 4 * given.B**2 * gamma**2) * x**2 + noise
    ours = ours + e**2 * (2 * drop**2 + (2 * given.B * gamma * before) ** 2)
    return printed, ours + e**2 * 2 * (gamma * before * reach + drop) ** 2 / (mu * gamma)


def _second_moment(q: ClippedQuadratic) -> dict[str, float]:
    """Assumption 4.2: how E |grad l(theta_PS; Z)|^2 grows with theta', and its two sides at theta' = theta."""
    given = q.dice_assumptions(0.0, 1.0)

    def moment(theta: np.ndarray, world: np.ndarray) -> np.ndarray:
        few, many = theta + q.a * (q.b - q.beta * world), theta - q.a * q.beta * world
        return q.p * few**2 + (1 - q.p) * many**2

    theta, far = np.linspace(-20, 20, 401), np.asarray([1e5, 1e6])
    here = moment(theta, theta) / (given.G**2 + given.B**2 * (theta - q.stable) ** 2)
    return {"power_elsewhere": power(far, moment(np.full(2, q.stable), far)), "moment_here": float(np.max(here))}

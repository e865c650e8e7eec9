"""Theorem 4.3 on the quadratic instance: its bound against runs, its proof step by step."""

import math

import numpy as np

from performative.papers.outcome import Outcome, lay_out, thinned
from performative.papers.pcsgd.watching import Runs
from performative.papers.runs import given
from performative.theory import ClippedQuadratic, DiceAssumptions, dice_model_error, dicesgd


@given(Runs)
def dice_bound(s: Runs, horizon: int, elsewhere: float) -> Outcome:
    """DiceSGD in plain NumPy against (18), and what (18) rests on."""
    q, eta = s.quadratic(s.beta), s.eta
    gap, lagged, memory = simulate(q, s)
    (model, _), (shifted, error) = _moments(gap), _moments(lagged)
    known = q.dice_assumptions(s.start, math.sqrt(np.max(_moments(memory)[0] + 4 * _moments(memory)[1])))
    printed, ours = (dicesgd(known, eta, s.sigma, form) for form in ("printed", "recursion"))
    long = s.steps(horizon)
    steps = {"printed": _largest(long, 2), "corrected": _largest(long, 1)}
    numbers = {
        "least_room": float(np.min(printed.total[1:] / (shifted + 4 * error)[1:])),
        "least_room_corrected": float(np.min(ours.total[1:] / (shifted + 4 * error)[1:])),
        "looseness": float(printed.total[-1] / shifted[-1]),
        "memory": known.M,
        **{f"b_bar_{form}_early": values[0] for form, values in steps.items()},
        **{f"b_bar_{form}_late": values[1] for form, values in steps.items()},
        **{f"b_bar_{form}_growth": values[1] / values[0] for form, values in steps.items()},
        "lemma_a_1": max(_lemma(eta, q.mu_tilde / 4, power, power) for power in (1, 2, 3, 4)),
        "lemma_a_1_itself": _lemma_itself(),
        **_one_step(q),
        **_second_moment(q, elsewhere),
    }
    t = np.arange(1, s.rounds + 1)
    lines = {
        "measured": model, "(18), as printed": dice_model_error(printed, known, eta),
        "corrected recursion": dice_model_error(ours, known, eta),
    }  # fmt: skip
    return Outcome(numbers, {"bound": lay_out({name: thinned(t, line[1:]) for name, line in lines.items()})})


def _moments(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over repeats."""
    return values.mean(axis=1), values.std(axis=1, ddof=1) / math.sqrt(values.shape[1])


def _largest(eta: np.ndarray, power: int) -> tuple[float, float]:
    """The least b_bar for gamma_t^2 / gamma_(t+1)^2 <= 1 + b_bar gamma_(t+1)^power: in 1 % of the steps, in all."""
    needed = (eta[:-1] ** 2 / eta[1:] ** 2 - 1) / eta[1:] ** power
    return float(needed[: len(needed) // 100].max()), float(needed.max())


def _lemma(eta: np.ndarray, rate: float, power: int, right: int) -> float:
    """The left side of Lemma A.1's condition less 1, over its right side less 1: at most 1 where it is met."""
    return float(np.max(((eta[:-1] / eta[1:]) ** power - 1) / (rate / 2 * eta[1:] ** right)))


def _lemma_itself(steps: int = 3000) -> float:
    """The largest ratio of the two sides of (28), over steps that meet the lemma's condition as printed, a = 1."""
    t, worst = np.arange(1, steps + 1), 0.0
    for power in (1, 2, 3, 4):
        # (gamma_t / gamma_(t+1))^p = 1 + 1 / (5 + t), and 1 + gamma_(t+1)^p / 2 = 1 + 1.25 / (6 + t).
        falling = (2.5 / (5 + t)) ** (1 / power)
        for eta in (falling, np.full(steps, 0.01), np.full(steps, 0.5), np.full(steps, 1.9)):
            total = 0.0
            for gamma in eta.tolist():
                total = (1 - gamma) * total + gamma ** (power + 1)
                worst = max(worst, total / (2 * gamma**power))
    return worst


def _one_step(q: ClippedQuadratic) -> dict[str, float]:
    """The most by which one exact step breaks (37), and by which it breaks ours, over models, memories and steps."""
    x, e = (v.ravel() for v in np.meshgrid(np.linspace(-6, 6, 121), np.linspace(-9, 9, 121)))
    worst = {"printed": -math.inf, "corrected": -math.inf}
    # On the instance itself, and on one whose gradients hardly vary.
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


def _second_moment(q: ClippedQuadratic, elsewhere: float) -> dict[str, float]:
    """Assumption 4.2: E |grad l(theta; Z)|^2 over G^2 + B^2 |theta - theta_PS|^2, Z of theta itself or of another."""
    given = q.dice_assumptions(0.0, 1.0)

    def ratio(theta: np.ndarray, world: np.ndarray) -> float:
        few, many = theta + q.a * (q.b - q.beta * world), theta - q.a * q.beta * world
        allowed = given.G**2 + given.B**2 * (theta - q.stable) ** 2
        return float(np.max((q.p * few**2 + (1 - q.p) * many**2) / allowed))

    theta = np.linspace(-20, 20, 401)
    return {"moment_elsewhere": ratio(theta, np.full_like(theta, elsewhere)), "moment_here": ratio(theta, theta)}


def simulate(q: ClippedQuadratic, s: Runs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Squares of theta - theta_PS, of theta - gamma e - theta_PS and of e, [T + 1, repeats]: Algorithm 1, C2 = C1."""
    rng, clip = np.random.default_rng(s.seed), s.clip
    theta, e = np.full(s.repeats, s.start), np.zeros(s.repeats)
    rows = [(theta, theta, e)]
    for gamma in s.eta:
        gradient = q.mu_tilde * theta + q.a * q.b * (rng.random(s.repeats) < q.p)
        v = np.clip(gradient, -clip, clip) + np.clip(e, -clip, clip)
        e = e + gradient - v
        theta = theta - gamma * (v + s.sigma * rng.standard_normal(s.repeats))
        rows.append((theta, theta - gamma * e, e))
    models, shifted, memories = (np.stack(column) for column in zip(*rows, strict=True))
    return (models - q.stable) ** 2, (shifted - q.stable) ** 2, memories**2

"""The convergence theorems on the paper's own example and their design implications: Section 3, numerically."""

import math
from typing import Any

import numpy as np

from performative.papers.outcome import Outcome, lay_out, thinned
from performative.papers.p_fedavg.instance import NAMES, Study, on_gaussian
from performative.theory import (
    Assumptions,
    Beside,
    Theorem,
    gaussian_beside,
    p_fedavg,
    steps_to_accuracy,
    theorem_3_1,
    theorem_3_2,
    theorem_3_3,
)


@on_gaussian
def theorems(s: Study, k: int) -> Outcome:
    """Theorems 3.1 to 3.3 as printed against the exact error, with their own steps and constants."""
    given = s.given
    numbers: dict[str, Any] = {"descent": _descent(given, s)}
    v: dict[str, float] = {}
    lines: dict[str, np.ndarray] = {}
    for name in ("full", "one", "two"):
        theorem = p_fedavg(given, s.local_steps, name, None if name == "full" else k, printed=True)
        beside = gaussian_beside(theorem, **s.own, start=s.start, rounds=s.rounds)
        numbers[f"error_over_bound_{name}"] = beyond(beside)
        v[name], numbers[f"b_{name}"] = beside.bound_limit, theorem.constants["B"]
        lines |= {f"{NAMES[name]}: bound": beside.bound, NAMES[name]: beside.exact}
    numbers["v_full_over_partial"] = v["full"] / min(v["one"], v["two"])
    for word, form in {"printed": True, "corrected": False}.items():
        # Lemma B.1 requires eta_0 <= mu_tilde / c2; with E = 1 nothing else bounds the first step.
        single = theorem_3_1(given, 1, printed=form)
        numbers[f"first_step_{word}"] = float(single.eta(0)) * single.constants["c2"] / single.constants["mu_tilde"]
        # Lemma B.2 divides 2 sigma^2 by the squared distance at the start, Table 2 does not.
        lemma = single.constants["mu_tilde"] * given.distance / (2 * given.sigma**2)
        numbers[f"largest_step_{word}"] = single.constants["eta_0"] / lemma
        # Identical clients without noise: the root in Theorem 3.3 uses c5 in print, which is then 0.
        calm: Any = {"mean": [1.0, 1.0], "sensitivity": [0.1, 0.1], "scale": 0.0, "start": 3.0}
        found = theorem_3_3(Assumptions.of_gaussian(**calm), 1, 1, printed=form)
        numbers[f"calm_{word}"] = beyond(gaussian_beside(found, **calm, rounds=s.rounds))
    return Outcome(
        numbers, {"bounds": lay_out({name: thinned(beside.t[1:], line[1:]) for name, line in lines.items()})}
    )


def beyond(beside: Beside) -> float:
    """The error over its bound: the largest ratio if it exceeds 1, else the limit of t times both.

    The start, where both are equal, does not count; a vacuous bound gives NaN.
    """
    if not np.isfinite(beside.bound_limit):
        return math.nan
    worst = float(np.max(beside.exact[1:] / beside.bound[1:]))
    return worst if worst > 1 else beside.exact_limit / beside.bound_limit


def _descent(given: Assumptions, s: Study, draws: int = 2000) -> float:
    """Lemma B.1 with c2 = 4 [...]: largest left over right side, at random local models of the paper's example."""
    rng = np.random.default_rng(s.seed)
    p, m, eps = (s.own[name] for name in ("weights", "mean", "sensitivity"))
    sd = np.broadcast_to(s.own["scale"], m.shape)
    c = theorem_3_1(given, 1).constants
    stable, worst = p @ m / (1 - p @ eps), 0.0
    for _ in range(draws):
        theta = stable + rng.normal() * 10 ** rng.uniform(-1, 2) + rng.normal(size=len(m)) * 10 ** rng.uniform(-2, 1)
        eta = c["mu_tilde"] / c["c2"] * rng.uniform(0.01, 1)
        left = (p @ (theta - eta * (theta - m - eps * theta)) - stable) ** 2 + eta**2 * p**2 @ sd**2
        spread = (c["c1"] * eta + c["c2"] * eta**2) * (p @ (theta - p @ theta) ** 2)
        right = (1 - c["mu_tilde"] * eta) * (p @ theta - stable) ** 2 + 2 * given.sigma**2 * eta**2 + spread
        worst = max(worst, float(left / right))
    return worst


@on_gaussian
def design(s: Study, k: int, few: int, cost: float, target: float, most_steps: int, long_steps: int) -> Outcome:
    """What Section 3.3 concludes from the bounds about E and K, and what the exact error says instead."""
    given, accuracy = s.given, (s.way * target) ** 2

    def theorem(E: int, n: int = k) -> Theorem:
        return theorem_3_2(given, E, n, printed=True)

    counts = np.arange(1, most_steps + 1)
    steps = np.array([steps_to_accuracy(theorem(int(E)), accuracy) for E in counts])
    per_round, total, half = steps / counts, steps * (1 + cost / counts), most_steps // 2
    # gamma / (E^2 log E) tends to a constant: its rate of change, late over early.
    order = {E: theorem(E).gamma / (E**2 * math.log(E)) for E in (half // 10, most_steps // 10, half, most_steps)}
    own = [s.of_steps(int(E), long_steps) for E in counts[:20]]
    seen = np.array([one.steps_to(one.exact(), s.way * target) for one in own]) * (1 + cost / counts[:20])
    numbers = {
        "b_one_exponent": math.log2(theorem(most_steps).constants["B"] / theorem(half).constants["B"]),
        "gamma_order": abs(order[most_steps] / order[half] - 1) / abs(order[most_steps // 10] / order[half // 10] - 1),
        "least_growth": float(np.min(steps[1:] / steps[:-1])),
        "rounds_last_over_peak": float(per_round[-1] / np.max(per_round)),
        "middle_by_bound": float(total[1:-1].min() / min(total[0], total[-1])),
        "middle_exact": float(seen[1:-1].min() / min(seen[0], seen[-1])),
        "bound_many_over_few": theorem(5, k).v / theorem(5, few).v,
        "exact_many_over_few": own[4].limit("one", k) / own[4].limit("one", few),
    }
    return Outcome(numbers, {"rounds": lay_out({"T / E by the bound": (counts, per_round)})})


def scaling(weights: list[float], sensitivity: float, scale: float, mean_m: float) -> Outcome:
    """Scheme II with unequal weights via scaled objectives g_i = N p_i f_i: printed against true constants.

    Identical clients, so f_i = f and varsigma = 0; theta_PS = mean_m / (1 - sensitivity).
    """
    p = np.asarray(weights)
    q = len(p) * p
    eps = np.full(len(p), sensitivity)
    given = Assumptions.of_gaussian(mean_m, eps, scale, weights=p, start=0.0)
    forms = {"printed": given.rescaled(printed=True), "corrected": given.rescaled()}
    stable = mean_m / (1 - sensitivity)
    theta = stable + np.linspace(-50, 50, 1001)
    gradient = (1 - sensitivity) * (theta - stable)
    gap = np.max(np.abs(gradient - q[:, None] * gradient), axis=0) / np.sqrt(1 + (theta - stable) ** 2)
    numbers: dict[str, float] = {}
    for name, form in forms.items():
        # The gradients of g_i are N p_i times those of f_i.
        numbers[f"noise_over_{name}"] = float(q.max()) * scale / form.sigma
        numbers[f"gap_over_{name}"] = float(np.max(gap)) / form.varsigma if form.varsigma > 0 else math.inf
        numbers[f"pull_over_mu_{name}"] = form.pull / form.mu
    return Outcome(numbers)

"""The convergence theorems on the paper's own example, and what they say of the design: Section 3, by numbers."""

import dataclasses
import math
from typing import Any

import numpy as np

from performative.papers.outcome import Outcome, lay_out
from performative.papers.p_fedavg.instance import Study, on_gaussian
from performative.theory import (
    Assumptions,
    best_local_steps,
    gaussian_beside,
    p_fedavg,
    steps_to_accuracy,
    theorem_3_1,
    theorem_3_2,
    theorem_3_3,
)


@on_gaussian
def theorems(s: Study, k: int) -> Outcome:
    """Theorems 3.1 to 3.3 as printed beside the exact error, with their own steps and constants."""
    given = s.given
    numbers: dict[str, Any] = {}
    for name in ("full", "one", "two"):
        theorem = p_fedavg(given, s.local_steps, name, None if name == "full" else k, printed=True)
        beside = gaussian_beside(theorem, **s.own, start=s.start, rounds=s.rounds)
        numbers[f"exact_over_bound_{name}"] = float(np.max(beside.exact / beside.bound))
        numbers[f"limit_over_bound_{name}"] = beside.exact_limit / beside.bound_limit
        numbers[f"looseness_{name}"] = beside.bound_limit / beside.exact_limit
        numbers[f"v_{name}"] = beside.bound_limit
    numbers["least_looseness"] = min(numbers[f"looseness_{name}"] for name in ("full", "one", "two"))
    numbers["v_full_over_partial"] = numbers["v_full"] / min(numbers["v_one"], numbers["v_two"])
    one, two = (find(given, s.local_steps, k, printed=True) for find in (theorem_3_2, theorem_3_3))
    numbers["b_one"], numbers["b_two"] = one.constants["B"], two.constants["B"]
    # Lemma B.1 asks for eta_0 <= mu_tilde / c2; with E = 1 nothing else holds the first step down.
    for form in (True, False):
        single = theorem_3_1(given, 1, printed=form)
        word = "printed" if form else "corrected"
        numbers[f"first_step_{word}"] = float(single.eta(0)) * single.constants["c2"] / single.constants["mu_tilde"]
        # Lemma B.2 divides 2 sigma^2 by the squared distance at the start, Table 2 does not.
        lemma = single.constants["mu_tilde"] * given.distance / (2 * given.sigma**2)
        numbers[f"largest_step_{word}"] = single.constants["eta_0"] / lemma
    return Outcome(numbers | _calm_clients() | {"a_of_c2": math.nan, "descent": _descent(given, s)})


def _calm_clients() -> dict[str, float]:
    """Theorem 3.3 where clients are alike and nothing is random: its root takes c5, which is then 0."""
    mean, eps, start = [1.0, 1.0], [0.1, 0.1], 3.0
    given = Assumptions.of_gaussian(mean, eps, 0.0, start=start)
    worst = {}
    for form in (True, False):
        beside = gaussian_beside(theorem_3_3(given, 1, 1, printed=form), mean, eps, 0.0, start=start, rounds=2000)
        worst["calm_printed" if form else "calm_corrected"] = float(np.max(beside.exact / beside.bound))
    return worst


def _descent(given: Assumptions, s: Study, draws: int = 2000) -> float:
    """Lemma B.1 with c2 = 4 [...]: largest left side over right side, at random local models of the own example."""
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
    """What Section 3.3 reads off the bounds on E and K, and what the exact error says instead."""
    given, accuracy = s.given, (s.way * target) ** 2

    def bound(E: int) -> float:
        return steps_to_accuracy(theorem_3_2(given, E, k, printed=True), accuracy)

    counts = np.arange(1, most_steps + 1)
    steps = np.array([bound(int(E)) for E in counts])
    per_round = steps / counts
    doubled = [theorem_3_2(given, E, k, printed=True).gamma for E in (most_steps // 2, most_steps)]
    order = [E**2 * math.log(E) for E in (most_steps // 2, most_steps)]
    seen = {}
    for E in range(1, 11):
        own = s.of_steps(E, long_steps)
        seen[E] = own.steps_to(own.exact(), s.way * target) * (1 + cost / E)
    of_five = s.of_steps(5, long_steps)
    few_steps, many_steps = (steps_to_accuracy(theorem_3_2(given, 5, n, printed=True), accuracy) for n in (few, k))
    numbers = {
        "b_one_growth": theorem_3_2(given, 50, k, printed=True).constants["B"]
        / theorem_3_2(given, 1, k, printed=True).constants["B"],
        "gamma_order": doubled[1] / doubled[0] / (order[1] / order[0]),
        "least_growth": float(np.min(steps[1:] / steps[:-1])),
        "rounds_last_over_peak": float(per_round[-1] / np.max(per_round)),
        "best_by_bound": float(best_local_steps(bound, cost, most_steps).local_steps),
        "best_exact": float(min(seen, key=seen.__getitem__)),
        "bound_many_over_few": many_steps / few_steps,
        "exact_many_over_few": of_five.limit("one", k) / of_five.limit("one", few),
    }
    return Outcome(numbers, {"rounds": lay_out({"T / E by the bound": (counts, per_round)})})


def scaling(weights: list[float], sensitivity: float, scale: float, mean_m: float) -> Outcome:
    """Scheme II with unequal weights by scaled objectives g_i = N p_i f_i: the constants as printed and as they are.

    Equal clients, so that f_i = f and varsigma = 0; theta_PS = mean_m / (1 - sensitivity).
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
    unequal = dataclasses.replace(given, heaviest=1.0, lightest=1.0)
    numbers["pull_over_mu_before"] = unequal.pull / unequal.mu
    return Outcome(numbers)

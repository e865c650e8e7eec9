"""The appendices' propositions and lemmas, each on an instance that can be worked out."""

import itertools
from typing import Any

import numpy as np

import performative as pf
from performative.papers.outcome import Outcome
from performative.papers.p_fedavg.instance import Study, on_gaussian
from performative.theory import Assumptions, gaussian_beside, theorem_3_1, theorem_b_4, theorem_d_5
from performative.theory.gaussian import local_maps


@on_gaussian
def appendices(s: Study) -> Outcome:
    """Appendix A on pricing, B on the paper's own example, B.4 and D.5 on one client, the rest on two or three."""
    numbers = _contraction() | _best_responses(s.seed) | _any_steps(s.rounds) | _bounded_gradients(s.rounds)
    numbers |= _spread_of_clients() | _smooth_constant() | _sampling()
    return Outcome(numbers | {"consensus_over_bound": _consensus(s)})


def _contraction() -> dict[str, float]:
    """l = mu theta^2 / 2 - L theta z, z ~ N(1 + eps theta, .), L / mu = 2: Phi has the slope eps L / mu."""
    ends = {}
    for name, eps in {"below_l_over_mu": 1.0, "below_mu_over_l": 0.4}.items():
        theta, stable = 0.0, 2.0 / (1.0 - 2.0 * eps)
        for _ in range(60):
            theta = 2.0 * (1.0 + eps * theta)
        ends[f"end_{name}"] = abs(theta - stable)
    return ends


def _best_responses(seed: int) -> dict[str, float]:
    """Best response dynamics of three clients of unequal weight, from far away and from the stable point."""
    rng = np.random.default_rng(seed)
    population = pf.populations.Gaussian(rng.normal(size=3), np.array([0.9, 0.2, -0.4]), 1.0)
    problem = pf.Problem(pf.losses.squared, population, np.array([0.5, 0.3, 0.2]))
    stable = float(np.asarray(pf.stable_point(problem)))
    far, stays = (np.asarray(pf.repeated_risk_minimization(problem, theta, 60)) for theta in (-100.0, stable))
    return {"best_responses_end": float(abs(far[-1] - stable)), "nobody_moves": float(np.max(np.abs(stays - stable)))}


def _worst(forms: dict[str, Any], m: float, eps: float, start: float, rounds: int) -> dict[str, Any]:
    """The exact error and its largest ratio to each form of a bound, one client without spread."""
    found = {}
    for name, theorem in forms.items():
        beside = gaussian_beside(theorem, m, eps, 1.0, start=start, rounds=rounds)
        found[name] = beside.exact, float(np.max(beside.exact / beside.bound))
    return found


def _any_steps(rounds: int) -> dict[str, float]:
    """Theorem B.4 with beta = 1000: t MSE goes to beta^2 / (beta - 1), far above 4 B / mu_tilde^2 = 128."""
    given = Assumptions.of_gaussian(1.0, 0.5, 1.0, start=2.01)
    forms = {"printed": theorem_b_4(given, 1, 1000.0, 2e4, printed=True), "corrected": theorem_b_4(given, 1, 1e3, 52e3)}
    return {f"b4_{name}": ratio for name, (_, ratio) in _worst(forms, 1.0, 0.5, 2.01, rounds).items()}


def _bounded_gradients(rounds: int) -> dict[str, float]:
    """Theorem D.5 where the reaction is strong: beta mu - 1 = 20 where 2 beta (1 - eps) - 1 is 3.2."""
    given = Assumptions.of_gaussian(1.0, 0.9, 1.0, start=10.0, G=1.2)
    forms = {
        "printed": theorem_d_5(given, 1, 21.0, 90.0, printed=True),
        "corrected": theorem_d_5(given, 1, 21.0, 21 * 4 * (1 + 1.9**2) / 0.05),
    }
    found = {"far_gradient": (1.0 + 0.1**2 * 1e6**2) / 1.2**2}
    for name, (exact, ratio) in _worst(forms, 1.0, 0.9, 10.0, rounds).items():
        # The second moment of a gradient, sigma^2 + (1 - eps)^2 E(theta - theta_PS)^2, at all that is visited.
        found |= {f"d5_{name}": ratio, f"visited_{name}": float(np.max(1.0 + 0.1**2 * exact)) / 1.2**2}
    return found


def _spread_of_clients() -> dict[str, float]:
    """Lemmas D.2, D.4 and D.6: two clients that pull apart by +-10, E = 20 small steps, no noise."""
    m, eps, eta, steps, pull = np.array([10.0, -10.0]), np.zeros(2), 1e-4, 20, 10.0
    _, before, _ = local_maps(m, eps, np.zeros(2), np.full((1, steps - 1), eta), "step", 0.0)
    _, after, _ = local_maps(m, eps, np.zeros(2), np.full((1, steps), eta), "step", 0.0)
    spread, last = float(np.mean(before**2)), float(np.mean(after**2))
    return {
        "spread_over_d2": spread / (4 * (steps - 1) ** 2 * eta**2 * pull**2),
        "spread_over_d4": spread / (4 * (steps - 1) * eta**2 * pull**2),
        # One of two at random: the mean of the drawn is off by all of the spread.
        "drawn_over_d6": last / (4 * steps**2 * eta**2 * pull**2),
    }


def _smooth_constant() -> dict[str, float]:
    """Lemma D.7's c1 with L^2 where L = 0.01: one step without noise, clients with eps = 0 and 1, delta = 0.9."""
    L, eps, p, delta = 0.01, np.array([0.0, 1.0]), np.array([0.5, 0.5]), 0.9
    bar, reach = 0.5, (1.0 + 1.0) ** 2
    mu_tilde, c2 = L - (1 + delta) * bar * L, 4 * L**2 * reach
    eta, worst = 0.01 * mu_tilde / c2, {"printed": -np.inf, "corrected": -np.inf}
    for ratio in np.geomspace(1e-2, 1e2, 400):
        theta = 1.0 + ratio * (eps - bar)  # theta_PS = 0, its mean is 1
        left = (p @ (theta - eta * L * (1 - eps) * theta)) ** 2
        spread = p @ (theta - 1.0) ** 2
        for name, c1 in {
            "printed": L**2 * reach / (2 * delta * bar),
            "corrected": L * reach / (2 * delta * bar),
        }.items():
            right = (1 - mu_tilde * eta) + (c1 * eta + c2 * eta**2) * spread
            worst[name] = max(worst[name], float((left - right) / (eta * mu_tilde)))
    return {f"descent_{name}": value for name, value in worst.items()}


def _sampling() -> dict[str, float]:
    """E |mean of the drawn - mean of all|^2 over all K-subsets, by enumeration: N = 6, K = 4."""
    x, k = np.array([1.0, 4.0, -2.0, 0.5, 3.0, 7.0]), 4
    N = len(x)
    drawn = np.mean([(np.mean(x[list(few)]) - x.mean()) ** 2 for few in itertools.combinations(range(N), k)])
    factor = float(drawn / np.mean((x - x.mean()) ** 2))
    return {
        "factor_over_b3": factor * k * N * (N - 1) / (N - k),
        "factor_over_section_3": factor * k * (N - 1) / (N - k),
    }


def _consensus(s: Study) -> float:
    """Lemma B.2: the spread of local models in the first round over its bound, with the theorem's own steps."""
    found = theorem_3_1(s.given, s.local_steps)
    p, m, eps = (s.own[name] for name in ("weights", "mean", "sensitivity"))
    noise = np.broadcast_to(s.own["scale"] ** 2, m.shape)
    worst = 0.0
    for e in range(1, s.local_steps):
        eta = np.asarray(found.eta(np.arange(e)))[None, :]
        A, B, S = local_maps(m, eps, noise, eta, "step", s.start)
        models = A[0] * s.start + B[0]
        spread = p @ (models - p @ models) ** 2 + S[0] @ (p - p**2)
        worst = max(worst, spread / (4 * float(found.eta(e)) ** 2 * found.constants["drift"] * found.constants["c5"]))
    return float(worst)

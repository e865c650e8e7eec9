"""The appendices' propositions and lemmas, each on a tractable instance."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np

from performative.papers.outcome import Outcome
from performative.papers.p_fedavg.bounds import beyond
from performative.papers.p_fedavg.instance import Study, on_gaussian
from performative.theory import (
    Assumptions,
    gaussian_beside,
    p_fedavg,
    theorem_b_4,
    theorem_c_5,
    theorem_d_5,
    theorem_d_8,
)
from performative.theory.gaussian import local_maps
from performative.theory.jin2024.theorems import consensus, participation

SCHEMES = ("full", "one", "two")


@on_gaussian
def appendices(s: Study, k: int, mild: dict[str, Any], wider: float) -> Outcome:
    """Appendix A on pricing, B and C on Gaussian clients, B.4, D.5 and D.8 on identical clients, D on two or four.

    Lemmas B.1 to C.4 on clients with `mild` differences, for which the steps they allow are not vanishingly small;
    Theorem C.5 on the paper's own example with `wider` times the beta and gamma of Section 3.
    """
    numbers = _contraction() | _spread_of_clients() | _smooth_constant() | _sampling() | _step_sums()
    for scheme in SCHEMES:
        calm = replace(s, **mild)
        numbers |= {f"{name}_{scheme}": worst for name, worst in _along(calm, scheme, k).items()}
    for scheme in SCHEMES[1:]:
        own = p_fedavg(s.given, s.local_steps, scheme, k, printed=True)
        theorem = theorem_c_5(s.given, s.local_steps, wider * own.beta, wider * own.gamma, scheme, k, printed=True)
        numbers[f"c5_{scheme}"] = beyond(gaussian_beside(theorem, **s.own, start=s.start, rounds=s.rounds))
    return Outcome(numbers | _any_steps(s.rounds) | _bounded_gradients(s.rounds))


def _along(s: Study, scheme: str, k: int) -> dict[str, float]:
    """Lemmas B.1 to B.3 ("full") and C.2 to C.4 on the exact recursion, every local step of the first rounds.

    step     E|theta_{t+1} - theta_PS|^2 over (1 - mu_tilde eta) E|theta_t - theta_PS|^2 + 2 sigma^2 eta^2
             + (c1 eta + c2 eta^2) spread_t (+ u times the spread of what is averaged, where clients are drawn)
    spread   the clients' spread over 4 eta^2 drift c5
    descent  E|theta_{t+1} - theta_PS|^2 over (1 - mu_tilde eta) E|theta_t - theta_PS|^2 + B eta^2
    """
    found = p_fedavg(s.given, s.local_steps, scheme, None if scheme == "full" else k)
    c, noise, u = found.constants, 2 * s.given.sigma**2, participation(s.given, scheme, found.k)[0]
    p, m, eps = (s.own[name] for name in ("weights", "mean", "sensitivity"))
    variance = np.broadcast_to(s.own["scale"] ** 2, m.shape)
    rounds, E = min(s.rounds, 200), s.local_steps
    eta = np.asarray(found.eta(np.arange(rounds * E)))
    known, steps = s.exact(scheme, found.k, eta=eta), eta.reshape(rounds, E)
    worst = {"step": 0.0, "spread": 0.0, "descent": 0.0}
    for r, e in itertools.product(range(rounds), range(1, E + 1)):
        if e == 1:
            before, apart = float(known.mse[r]), 0.0
        A, B, S = (part[0] for part in local_maps(m, eps, variance, steps[r : r + 1, :e], "step", s.start))
        a, b, theta, moving = p @ A, p @ B, known.mean[r], known.variance[r]
        spread = float(p @ (((A - a) * theta + B - b) ** 2 + (A - a) ** 2 * moving) + S @ (p - p**2))
        after = float((a * theta + b - s.stable) ** 2 + a**2 * moving + p**2 @ S)
        h, last = steps[r, e - 1], e == E
        whole = float(known.mse[r + 1]) if last else after
        kept = (1 - c["mu_tilde"] * h) * before
        lemma = kept + noise * h**2 + (c["c1"] * h + c["c2"] * h**2) * apart + (u * spread if last else 0.0)
        total = c["B"] if scheme == "full" else noise + consensus(c, h, u)
        worst["step"] = max(worst["step"], whole / lemma)
        worst["descent"] = max(worst["descent"], whole / (kept + total * h**2))
        if not last:
            worst["spread"] = max(worst["spread"], spread / (4 * h**2 * c["drift"] * c["c5"]))
        before, apart = after, spread
    return worst


def _contraction() -> dict[str, float]:
    """l = mu theta^2 / 2 - L theta z, z ~ N(1 + eps theta, .), L / mu = 2: |Phi(u) - Phi(v)| / |u - v| where eps is
    below L / mu, and where it is below mu / L."""

    def retrained(theta: float, eps: float) -> float:
        return 2.0 * (1.0 + eps * theta)

    both = {"below_l_over_mu": 1.0, "below_mu_over_l": 0.4}
    return {f"slope_{name}": abs(retrained(3.0, eps) - retrained(1.0, eps)) / 2.0 for name, eps in both.items()}


def _any_steps(rounds: int) -> dict[str, float]:
    """Theorem B.4 with beta = 1000: t MSE goes to beta^2 / (beta - 1), far above 4 B / mu_tilde^2 = 128."""
    given = Assumptions.of_gaussian(1.0, 0.5, 1.0, start=2.01)
    forms = {"printed": theorem_b_4(given, 1, 1000.0, 2e4, printed=True), "corrected": theorem_b_4(given, 1, 1e3, 52e3)}
    return {
        f"b4_{name}": beyond(gaussian_beside(theorem, 1.0, 0.5, 1.0, start=2.01, rounds=rounds))
        for name, theorem in forms.items()
    }


def _bounded_gradients(rounds: int) -> dict[str, float]:
    """Theorems D.5 and D.8 under a strong reaction, beta = 300: beta mu - 1 = 299, 2 beta (1 - eps) - 1 = 5.

    Two identical clients, of which Schemes I and II sample one.
    """
    alike: Any = {"mean": [0.01, 0.01], "sensitivity": [0.99, 0.99], "scale": 1.0, "start": 1.0}
    given, found = Assumptions.of_gaussian(**alike, G=1.2), {}
    for name, gamma in {"printed": 1300.0, "corrected": 300 * 4 * (1 + 1.99**2) / 0.005}.items():
        theorems = {"d5": theorem_d_5(given, 1, 300.0, gamma, printed=name == "printed")}
        for scheme in SCHEMES[1:]:
            theorems[f"d8_{scheme}"] = theorem_d_8(given, 1, 300.0, gamma, scheme, 1, printed=name == "printed")
        for which, theorem in theorems.items():
            beside = gaussian_beside(theorem, **alike, rounds=rounds)
            found[f"{which}_{name}"] = beyond(beside)
        # The second moment of a gradient, sigma^2 + (1 - eps)^2 E(theta - theta_PS)^2, at all visited models.
        found[f"visited_{name}"] = float(np.max(1.0 + 0.01**2 * beside.exact)) / 1.2**2
    return found | {"far_gradient": (1.0 + 0.01**2 * 1e6**2) / 1.2**2}


def _spread_of_clients() -> dict[str, float]:
    """Lemmas D.2, D.4 and D.6: four clients with offsets +-10, E = 20 small steps, no noise, two sampled."""
    m, eta, steps, pull, k = np.array([10.0, -10.0, 10.0, -10.0]), 1e-4, 20, 10.0, 2
    still, N = np.zeros(4), 4
    _, before, _ = local_maps(m, still, still, np.full((1, steps - 1), eta), "step", 0.0)
    _, after, _ = local_maps(m, still, still, np.full((1, steps), eta), "step", 0.0)
    spread, x, whole = float(np.mean(before**2)), after[0], 4 * steps**2 * eta**2 * pull**2
    draws = {"one": itertools.product(range(N), repeat=k), "two": itertools.combinations(range(N), k)}
    off = {name: np.mean([(x[list(who)].mean() - x.mean()) ** 2 for who in sets]) for name, sets in draws.items()}
    return {
        "spread_over_d2": spread / (4 * (steps - 1) ** 2 * eta**2 * pull**2),
        "spread_over_d4": spread / (4 * (steps - 1) * eta**2 * pull**2),
        "drawn_over_d6_one": float(off["one"]) / (whole / k),
        "drawn_over_d6_two": float(off["two"]) / (whole * (N - k) / (k * (N - 1))),
    }


def _step_sums() -> dict[str, float]:
    """Lemma D.3 with eta_t = 8 / (t + 20) and a = 1: its condition, with eta^q and with eta, and what it concludes."""
    eta, a = 8 / (np.arange(1, 20000) + 20.0), 1.0
    found = {"d3_condition_printed": 0.0, "d3_condition_corrected": 0.0, "d3_sum": 0.0}
    for q in (1, 2, 3):
        growth = (eta[:-1] / eta[1:]) ** q - 1
        for name, power in {"printed": q, "corrected": 1}.items():
            key = f"d3_condition_{name}"
            found[key] = max(found[key], float(np.max(growth / (a / 2 * eta[1:] ** power))))
        total = 0.0
        for step in eta:
            total = (1 - a * step) * total + step ** (q + 1)
            found["d3_sum"] = max(found["d3_sum"], float(total / (2 / a * step**q)))
    return found


def _smooth_constant() -> dict[str, float]:
    """Lemma D.7's c1 with L^2 where L = 0.01: one step without noise, clients with eps = 0 and 1, delta = 0.9."""
    L, eps, p, delta = 0.01, np.array([0.0, 1.0]), np.array([0.5, 0.5]), 0.9
    bar, reach = 0.5, (1.0 + 1.0) ** 2
    mu_tilde, c2 = L - (1 + delta) * bar * L, 4 * L**2 * reach
    eta, worst = 0.01 * mu_tilde / c2, {"printed": -np.inf, "corrected": -np.inf}
    for ratio in np.geomspace(1e-2, 1e2, 400):
        theta = 1.0 + ratio * (eps - bar)  # theta_PS = 0, its mean is 1
        left, spread = (p @ (theta - eta * L * (1 - eps) * theta)) ** 2, p @ (theta - 1.0) ** 2
        for name, power in {"printed": 2, "corrected": 1}.items():
            right = (1 - mu_tilde * eta) + (L**power * reach / (2 * delta * bar) * eta + c2 * eta**2) * spread
            worst[name] = max(worst[name], float((left - right) / (eta * mu_tilde)))
    return {f"c1_{name}": value for name, value in worst.items()}


def _sampling() -> dict[str, float]:
    """E |mean of the drawn - mean of all|^2 over all K-subsets, by enumeration: N = 6, K = 4."""
    x, k = np.array([1.0, 4.0, -2.0, 0.5, 3.0, 7.0]), 4
    N = len(x)
    drawn = np.mean([(np.mean(x[list(few)]) - x.mean()) ** 2 for few in itertools.combinations(range(N), k)])
    factor = float(drawn / np.mean((x - x.mean()) ** 2)) * k * (N - 1) / (N - k)
    return {"factor_over_b3": factor * N, "factor_over_section_3": factor}

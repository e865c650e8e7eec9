"""One model per bank, pulled toward the shared one: where banks settle, and what it costs their clients."""

from typing import Any

import numpy as np

import performative as pf
from performative.papers.outcome import Outcome, lay_out, mean
from performative.papers.runs import sweep


def pulled(
    clients: int, spread: float, reaction: list[float], noise: float, rate: float, strengths: list[float], some: float,
    rounds: int, repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """Ditto over strengths of its proximal pull, evaluated at `some`, next to one model for all."""
    rng = np.random.default_rng(seed)
    level, eps = spread * rng.standard_normal(clients), rng.uniform(reaction[0], reaction[1], clients)

    def banks(scale: float) -> pf.Problem:
        return pf.Problem(pf.losses.squared, pf.populations.Gaussian(level, eps, scale))

    settings: dict[Any, dict[str, Any]] = {pull: {"sharing": pf.sharing.Ditto(float(pull))} for pull in strengths}
    ditto = pf.p_fedavg(rate, sharing=pf.sharing.Ditto(float(strengths[0])))
    quiet = sweep(banks(0.0), ditto, settings, rounds, 0.0, seed)
    noisy = sweep(banks(noise), ditto, settings, rounds, 0.0, seed, repeats)
    one = sweep(banks(noise), pf.p_fedavg(rate), {"one": {"rate": rate}}, rounds, 0.0, seed, repeats)["one"]
    exact = {pull: _models(level, eps, pull) for pull in strengths}
    apart = {pull: np.asarray(run.models, np.float64).std(axis=1) for pull, run in noisy.items()}
    # The risk of people who have reacted to v: ((1 - eps) v - m)^2 / 2, plus that of their noise.
    risk = {pull: _risk(np.asarray(run.models, np.float64), level, eps) for pull, run in noisy.items()}
    shared = _risk(np.asarray(one.final, np.float64)[:, None], level, eps)
    off = [np.abs(np.asarray(quiet[pull].models, np.float64)[0] - exact[pull]).max() for pull in strengths]
    numbers: dict[str, Any] = {
        "largest_error_of_equation": max(off) / level.std(),
        "apart_alone": mean(apart[strengths[0]]),
        "apart_strongest": mean(apart[strengths[-1]]),
        "risk_one": mean(shared),
        "risk_alone": mean(risk[strengths[0]]),
        "risk_pulled": mean(risk[some]),
    }
    x = np.asarray(strengths, np.float64)
    points = {f"bank {i + 1}": (x, [exact[pull][i] for pull in strengths]) for i in range(clients)}
    cost = {
        "pulled": (x, np.stack([risk[pull] for pull in strengths], axis=1)),
        "one model": (x, np.repeat(shared[:, None], len(x), axis=1)),
    }
    return Outcome(numbers, {"points": lay_out(points), "risk": lay_out(cost)})


def _models(level: np.ndarray, eps: np.ndarray, pull: float) -> np.ndarray:
    """v_i, from theta = sum p_i (m_i + eps_i v_i) with v_i = (m_i + pull theta) / (1 - eps_i + pull)."""
    down = 1 - eps + pull
    theta = np.mean(level + eps * level / down) / (1 - np.mean(eps * pull / down))
    return (level + pull * theta) / down


def _risk(models: np.ndarray, level: np.ndarray, eps: np.ndarray) -> np.ndarray:
    """Mean over banks, one per repeat."""
    return np.mean(((1 - eps) * models - level) ** 2, axis=1) / 2

"""Over-represented clients move the stable point, and the reaction amplifies the shift."""

from typing import Any

import numpy as np

import performative as pf
from performative.papers.heterogeneity.choice import rank_weights
from performative.papers.outcome import Outcome, mean, over
from performative.papers.runs import ends, sweep


def by_reaction(
    level: list[float], order: list[int], reactions: list[float], tilt: float, d: int, rate: float, rounds: int,
    repeats: int, draws: int, seed: int,
) -> Outcome:  # fmt: skip
    """Select the candidate of d with the highest loss, at rising reactions: all equal, or weaker for the outlier.

    level and order: the clients, and their ranking by loss at the models visited. Runs start at the stable point with
    rate / (1 - eps_bar), so all take the same time.
    """
    m, N = np.asarray(level, np.float64), len(level)
    weights = np.zeros(N)
    weights[order] = rank_weights(N, d, 1)
    kinds = {"alike": np.zeros(N), "outlier reacts less": tilt * _tilted(order[0], N)}
    rows = [(kind, eps, eps + lean) for kind, lean in kinds.items() for eps in reactions]
    settings: dict[Any, dict[str, Any]] = {}
    pulls, covered = [], []
    for kind, eps, each in rows:
        # theta is measured from the stable point, so one start, 0, serves all settings.
        residual = m - (1 - each) * (m.mean() / (1 - each.mean()))
        problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(residual, each, 0.0))
        settings[kind, eps] = {"problem": problem, "rate": rate / (1 - eps)}
        pulls.append(float(weights @ residual))
        covered.append(1 - (1 - rate / (1 - eps) * (1 - weights @ each)) ** rounds)
    first = settings[rows[0][:2]]["problem"]
    algorithm = pf.p_fedavg(rate, participation=pf.PowerOfChoice(1, d))
    runs = sweep(first, algorithm, settings, rounds, 0.0, seed, repeats)
    amplified = [ends(run) / share / pull for run, share, pull in zip(runs.values(), covered, pulls, strict=True)]
    average = [1 / (1 - each.mean()) for _, _, each in rows]
    chosen = [1 / (1 - weights @ each) for _, _, each in rows]
    half = len(reactions)
    found = [mean(one) for one in amplified]
    exact = average[:half] + chosen[half:]
    off = [(value / known, error / known) for (value, error), known in zip(found, exact, strict=True)]
    skews = [pf.selection_skew(first, pf.PowerOfChoice(1, d), [0.0], 0.0, draws=draws, seed=seed + i)[1]
             for i in range(8)]  # fmt: skip
    regrets = (m - m.mean()) ** 2
    lines = {
        "measured, alike": np.stack(amplified[:half], axis=1),
        "measured, outlier reacts less": np.stack(amplified[half:], axis=1),
        r"$1 / (1 - \bar\epsilon)$": average[:half],
        r"$1 / (1 - \epsilon_w)$": chosen[half:],
    }
    numbers: dict[str, Any] = {
        "amplification_alike": found[half - 1],
        "amplification_alike_exact": float(average[half - 1]),
        "amplification_tilted": found[-1],
        "amplification_by_average": float(average[-1]),
        "amplification_by_chosen": float(chosen[-1]),
        "farthest_from_exact": max(off, key=lambda one: abs(one[0] - 1) / one[1]),
        "rho_tilde": mean(skews),
        "rho_tilde_exact": float(weights @ regrets / regrets.mean()),
    }
    return Outcome(numbers, {"amplification": over(reactions, lines)})


def _tilted(strange: int, clients: int) -> np.ndarray:
    """-1 for the outlier client, offset by the others to keep the mean."""
    lean = np.full(clients, 1.0 / (clients - 1))
    lean[strange] = -1.0
    return lean

"""Whoever is heard too often moves the stable point, and the reaction amplifies the move."""

from typing import Any

import numpy as np

import performative as pf
from performative.papers.heterogeneity.choice import rank_weights
from performative.papers.outcome import Outcome, lay_out

QUIET: dict[str, Any] = {"callbacks": [pf.callbacks.Progress(False)], "dtype": "float64"}


def by_reaction(
    level: list[float], order: list[int], reactions: list[float], tilt: float, d: int, rate: float, rounds: int,
    repeats: int, draws: int, seed: int,
) -> Outcome:  # fmt: skip
    """The one of d candidates with the highest loss, at rising reactions: all alike, or the strange client less.

    level and order: clients, and who has the highest loss at the models that are met. Runs start at the stable point,
    with rate / (1 - eps_bar), so that all last equally long.
    """
    m, N = np.asarray(level, np.float64), len(level)
    weights = np.zeros(N)
    weights[order] = rank_weights(N, d, 1)
    kinds = {"alike": np.zeros(N), "strange one reacts less": tilt * _tilted(order[0], N)}
    rows = [(kind, eps, eps + lean) for kind, lean in kinds.items() for eps in reactions]
    settings: list[dict[str, Any]] = []
    pulls, covered = [], []
    for _, eps, each in rows:
        # theta is counted from the stable point on: one start, 0, serves all settings.
        residual = m - (1 - each) * (m.mean() / (1 - each.mean()))
        problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(residual, each, 0.0))
        settings.append({"problem": problem, "rate": rate / (1 - eps)})
        pulls.append(float(weights @ residual))
        covered.append(1 - (1 - rate / (1 - eps) * (1 - weights @ each)) ** rounds)
    algorithm = pf.p_fedavg(rate, participation=pf.PowerOfChoice(1, d))
    swept = pf.sweep(
        settings[0]["problem"],
        algorithm,
        settings,
        rounds,
        0.0,
        seed,
        repeats,
        record=pf.Record(theta="last", consensus=False, risks=False),
        **QUIET,
    )
    amplified = [
        np.asarray(history.final, np.float64) / share / pull
        for history, share, pull in zip(swept.histories, covered, pulls, strict=True)
    ]
    average = [1 / (1 - each.mean()) for _, _, each in rows]
    chosen = [1 / (1 - weights @ each) for _, _, each in rows]
    means = np.asarray([one.mean() for one in amplified])
    spread = np.asarray([one.std(ddof=1) / np.sqrt(len(one)) for one in amplified])
    half = len(reactions)
    off = np.abs(means - chosen) / spread
    found = pf.selection_skew(settings[0]["problem"], pf.PowerOfChoice(1, d), [0.0], 0.0, draws=draws, seed=seed)
    regrets = (m - m.mean()) ** 2
    skew = float(weights @ regrets / regrets.mean())
    lines = {
        "measured, alike": (reactions, np.stack(amplified[:half], axis=1)),
        "measured, strange one reacts less": (reactions, np.stack(amplified[half:], axis=1)),
        "1 / (1 - eps_bar)": (reactions, average[:half]),
        "1 / (1 - eps_w)": (reactions, chosen[half:]),
    }
    return Outcome(
        {
            "shift_without_reaction": pulls[0],
            "largest_reaction": reactions[-1],
            "amplification_alike": (float(means[half - 1]), float(spread[half - 1])),
            "amplification_alike_exact": float(average[half - 1]),
            "amplification_tilted": (float(means[-1]), float(spread[-1])),
            "amplification_by_average": float(average[-1]),
            "amplification_by_chosen": float(chosen[-1]),
            "largest_miss_in_errors": float(off.max()),
            "rho_tilde": found[1],
            "rho_tilde_exact": skew,
        },
        {"amplification": lay_out(lines)},
    )


def _tilted(strange: int, clients: int) -> np.ndarray:
    """-1 for the strange client, made up for by the others: the mean stays."""
    lean = np.full(clients, 1.0 / (clients - 1))
    lean[strange] = -1.0
    return lean

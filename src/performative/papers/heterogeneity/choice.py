"""Power-of-choice: clients chosen by their loss. Speed, bias, skew, fairness and hostile clients."""

from dataclasses import replace
from math import comb
from typing import Any

import numpy as np

import performative as pf
from performative.papers.heterogeneity.quadratic import Parabolas, parabolas, rounds_to
from performative.papers.outcome import Outcome, mean, over
from performative.papers.runs import models, sweep


def power_of_choice(
    clients: int, curvature: list[float], spread: float, reaction: list[float], k: int, candidates: list[int],
    rate: float, start: float, rounds: int, repeats: int, hostile: int, far: float, seed: int,
) -> Outcome:  # fmt: skip
    """d candidates, of which the k with the highest loss; then the cheap variant, and the lowest losses instead."""
    # Skewed levels: with symmetric ones the bias to both sides nearly cancels.
    levels = spread * np.random.default_rng(seed + 1).standard_exponential(clients)
    ours = replace(parabolas(clients, curvature, spread, reaction, seed), level=levels)
    same = replace(ours, level=(1.0 - ours.reaction) * ours.stable)  # all clients have one minimum
    attacked = replace(ours, level=np.where(np.arange(clients) < hostile, far, ours.level))
    honest = ours.balance(np.where(np.arange(clients) < hostile, 0.0, ours.weights))
    few, *_, most = candidates
    names: dict[str, dict[str, Any]] = {f"d = {d}": {"participation": pf.PowerOfChoice(k, d)} for d in candidates}
    names["last reported"] = {"participation": pf.PowerOfChoice(k, candidates[1], estimate="last")}
    names["same"] = {"participation": pf.PowerOfChoice(k, most), "problem": same.problem()}
    names["attacked, random"] = {"participation": pf.PowerOfChoice(k, few), "problem": attacked.problem()}
    low = pf.PowerOfChoice(k, candidates[1], prefer="low")
    names["attacked, low"] = {"participation": low, "problem": attacked.problem()}
    runs = sweep(ours.problem(), pf.p_fedavg(rate), names, rounds, start, seed, repeats, theta="all")
    paths = {name: models(run) for name, run in runs.items()}
    curve = float(ours.weights @ ours.slope) / 2
    excess = {name: curve * (path - ours.stable) ** 2 for name, path in paths.items()}
    late = slice(2 * rounds // 3, None)
    center = {name: path[:, late].mean(axis=1) for name, path in paths.items()}  # one a run
    floors = {name: curve * (center[name].mean() - ours.stable) ** 2 for name in names}
    goal = excess["d = " + str(few)].mean(axis=0)[0] / 100
    takes = {name: rounds_to(values.mean(axis=0) * (1 - 1e-12), goal) for name, values in excess.items()}
    met = np.linspace(min(p.min() for n, p in paths.items() if "d =" in n), start, 61)
    skews = {d: _skew(ours, met, d, k) for d in candidates}
    points = {d: rank_point(ours, d, k) for d in candidates}
    middle = candidates[1]
    diagonal, pairs, tilde, Gamma = skews[middle]
    floor_bound = Gamma * (tilde / diagonal - 1)
    worst = {d: float(np.max(_losses(ours, center[f"d = {d}"].mean()))) for d in candidates}
    numbers: dict[str, Any] = {
        "stable_point": ours.stable,
        "unbiased_end": mean(center[f"d = {few}"]),
        "chosen_end": mean(center[f"d = {middle}"]),
        "chosen_end_exact": points[middle],
        "floor_random": floors[f"d = {few}"],
        "floor_middle": floors[f"d = {middle}"],
        "floor_all": floors[f"d = {most}"],
        "floor_last_reported": floors["last reported"],
        "floor_same": float(np.mean(curve * (paths["same"][:, -1] - same.stable) ** 2)),
        "rounds_random": takes[f"d = {few}"],
        "rounds_middle": takes[f"d = {middle}"],
        "rounds_last_reported": takes["last reported"],
        "floor_bound": floor_bound,
        "share_of_floor_bound": floors[f"d = {middle}"] / floor_bound,
        "rho_bar_same_model": diagonal,
        "rho_bar_printed": pairs,
        "rho_bar_printed_all": skews[most][1],
        "rho_tilde": tilde,
        "worst_loss_random": worst[few],
        "worst_loss_middle": worst[middle],
        "worst_loss_all": worst[most],
        "attacked_random": float(np.mean(np.abs(center["attacked, random"] - honest))),
        "attacked_low": float(np.mean(np.abs(center["attacked, low"] - honest))),
        "shift_of_point": points[middle] - ours.stable,
    }
    x = np.arange(rounds + 1)
    shown = [f"d = {d}" for d in candidates] + ["last reported"]
    data = {key: over(x, {name: of[name] for name in shown}) for key, of in {"loss": excess, "model": paths}.items()}
    return Outcome(numbers, data)


def rank_weights(clients: int, d: int, k: int) -> np.ndarray:
    """How often the client with the j-th highest loss is among the k highest of d drawn evenly, over k."""
    ways = comb(clients, d) * k
    return np.asarray([sum(comb(j, above) * comb(clients - 1 - j, d - 1 - above) for above in range(k)) / ways
                       for j in range(clients)])  # fmt: skip


def chosen_weights(clients: Parabolas, theta: float, d: int, k: int) -> np.ndarray:
    """E[a_i] of the choice at theta, on data that have settled there."""
    weights = np.zeros(len(clients.level))
    weights[np.argsort(-_losses(clients, theta), kind="stable")] = rank_weights(len(clients.level), d, k)
    return weights


def rank_point(clients: Parabolas, d: int, k: int) -> float:
    """Where the mean pull of the chosen changes sign: the limit of small steps. For slopes that are positive."""
    low, high = clients.minima.min(), clients.minima.max()
    for _ in range(60):
        middle = (low + high) / 2
        pull = chosen_weights(clients, middle, d, k) @ (clients.slope * middle - clients.mean)
        low, high = (low, middle) if pull > 0 else (middle, high)
    return float(low + high) / 2


def _losses(clients: Parabolas, theta: float) -> np.ndarray:
    """F_i at theta on data that have settled under it; the minimum is 0."""
    return clients.curvature * ((1 - clients.reaction) * theta - clients.level) ** 2 / 2


def _skew(clients: Parabolas, models: np.ndarray, d: int, k: int) -> tuple[float, float, float, float]:
    """rho_bar at one model, rho_bar over all pairs as printed, rho_tilde, and Gamma."""
    regrets = np.stack([_losses(clients, x) for x in models])
    best = _losses(clients, clients.stable)
    chosen = np.stack([chosen_weights(clients, x, d, k) for x in models])
    rho = (chosen @ regrets.T) / (regrets @ clients.weights)
    Gamma = float(clients.weights @ best)
    return float(rho.diagonal().min()), float(rho.min()), float(np.max(chosen @ best) / Gamma), Gamma

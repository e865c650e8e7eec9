"""Power-of-choice: clients chosen by their loss. Speed, bias, skew, fairness and hostile clients."""

from dataclasses import replace
from itertools import pairwise
from math import comb
from typing import Any

import numpy as np

import performative as pf
from performative.papers.heterogeneity.quadratic import Parabolas, parabolas
from performative.papers.outcome import Outcome, mean, over
from performative.papers.runs import models, sweep


def power_of_choice(
    clients: int, curvature: list[float], spread: float, reaction: list[float], k: int, candidates: list[int],
    rate: float, start: float, rounds: int, repeats: int, hostile: int, far: float, seed: int,
    noise: float = 0.0, samples: int = 1, goals: tuple[float, float] = (0.1, 0.01),
) -> Outcome:  # fmt: skip
    """Select the k of d candidates with the highest loss, or the lowest; with noise, also the two cheap variants.

    Rounds are counted until F - min F first falls below a goal, given as a fraction of its initial value; the floor is
    the mean over the last third.
    """
    # Skewed levels: with symmetric ones the biases in both directions nearly cancel.
    levels = spread * np.random.default_rng(seed + 1).standard_exponential(clients)
    ours = replace(parabolas(clients, curvature, spread, reaction, seed), level=levels)
    same = replace(ours, level=(1.0 - ours.reaction) * ours.stable)  # all clients share one minimum
    sized = replace(ours, weights=np.arange(1, clients + 1) / (clients * (clients + 1) / 2))
    bad = np.arange(clients) < hostile
    attacked, honest = replace(ours, level=np.where(bad, far, ours.level)), ours.balance(np.where(bad, 0, ours.weights))
    few, middle, most = candidates[0], candidates[len(candidates) // 2], candidates[-1]
    choice, unlike = pf.PowerOfChoice, attacked.problem()
    names: dict[Any, dict[str, Any]] = {d: {"participation": choice(k, d)} for d in candidates}
    names["same"] = {"participation": choice(k, most), "problem": same.problem()}
    names["scheme I"] = {"participation": pf.SchemeOne(k), "problem": sized.problem()}
    names["attacked, random"] = {"participation": choice(k, few), "problem": unlike}
    names["attacked, low"] = {"participation": choice(k, middle, prefer="low"), "problem": unlike}
    if noise:
        variants: dict[str, Any] = {
            "random": choice(k, few), "pow-d": choice(k, middle), "rpow-d": choice(k, middle, estimate="last"),
            "cpow-d": choice(k, middle, estimate="batch", samples=samples),
        }  # fmt: skip
        noisy = ours.problem(noise)
        names |= {name: {"participation": part, "problem": noisy} for name, part in variants.items()}
    runs = sweep(ours.problem(), pf.p_fedavg(rate), names, rounds, start, seed, repeats, theta="all")
    paths = {name: models(run) for name, run in runs.items()}
    curve = float(ours.weights @ ours.slope) / 2
    excess = {name: curve * (path - ours.stable) ** 2 for name, path in paths.items()}
    center = {name: path[:, 2 * rounds // 3 :].mean(axis=1) for name, path in paths.items()}  # one per run
    floor = {d: excess[d][:, 2 * rounds // 3 :].mean(axis=1) for d in candidates}
    takes = {goal: {name: _first(values, goal) for name, values in excess.items()} for goal in goals}
    early, late = goals
    more = [takes[early][a] - takes[early][b] for a, b in pairwise(candidates)]
    diagonal, pairs, tilde, Gamma = _skew(ours, np.linspace(min(paths[d].min() for d in candidates), start, 61), middle,
                                          k)  # fmt: skip
    worst = {d: np.asarray([_losses(ours, theta).max() for theta in center[d]]) for d in (few, middle)}
    point = rank_point(ours, middle, k)
    numbers: dict[str, Any] = {
        "stable_point": ours.stable,
        "unbiased_end": mean(center[few]),
        "scheme_one_off": mean(center["scheme I"] - sized.stable),
        "chosen_end": mean(center[middle]),
        "chosen_end_exact": point,
        "shift_of_point": point - ours.stable,
        "bias": mean(np.sign(point - ours.stable) * (center[middle] - ours.stable)),
        "floor_gain_of_all": mean(floor[most] - floor[middle]),
        "floor_same": float(np.mean(curve * (paths["same"][:, -1] - same.stable) ** 2)),
        "rounds_random": mean(takes[late][few]),
        "rounds_middle": mean(takes[late][middle]),
        "rounds_all": mean(takes[late][most]),
        "least_saving_of_larger_d": min(map(mean, more)),
        "share_of_floor_bound": _scaled(mean(center[middle]), ours.stable, curve / (Gamma * (tilde / diagonal - 1))),
        "rho_bar_same_model": diagonal,
        "rho_bar_printed": pairs,
        "worst_loss_gain": mean(worst[few] - worst[middle]),
        "attacked_random": mean(np.abs(center["attacked, random"] - honest)),
        "attacked_low": mean(np.abs(center["attacked, low"] - honest)),
    }
    shown = {f"d = {d}": d for d in candidates} | ({name: name for name in ("cpow-d", "rpow-d")} if noise else {})
    for name in ("pow-d", "cpow-d", "rpow-d") if noise else ():
        numbers[f"{name.replace('-', '_')}_saves"] = mean(takes[late]["random"] - takes[late][name])
    x = np.arange(rounds + 1)
    data = {key: over(x, {name: of[at] for name, at in shown.items()})
            for key, of in {"loss": excess, "model": paths}.items()}  # fmt: skip
    by_d = {f"{goal:g} of the start": takes[goal] for goal in goals}
    data["by_d"] = over(candidates, {name: np.stack([of[d] for d in candidates], axis=1) for name, of in by_d.items()})
    data["floor_by_d"] = over(candidates, {"last third": np.stack([floor[d] for d in candidates], axis=1)})
    return Outcome(numbers, data)


def _first(values: np.ndarray, goal: float) -> np.ndarray:
    """First record of each run [repeats, records] below the goal, a fraction of the first; their number if none is."""
    below = values < goal * values[:, :1]
    return np.where(below.any(axis=1), below.argmax(axis=1), values.shape[1]).astype(np.float64)


def _scaled(end: tuple[float, float], point: float, by: float) -> tuple[float, float]:
    """by (end - point)^2 and its standard error."""
    return by * (end[0] - point) ** 2, by * 2 * abs(end[0] - point) * end[1]


def rank_weights(clients: int, d: int, k: int) -> np.ndarray:
    """Probability that the client with the j-th highest loss is among the top k of d uniform candidates, over k."""
    ways = comb(clients, d) * k
    return np.asarray([sum(comb(j, above) * comb(clients - 1 - j, d - 1 - above) for above in range(k)) / ways
                       for j in range(clients)])  # fmt: skip


def chosen_weights(clients: Parabolas, theta: float, d: int, k: int) -> np.ndarray:
    """E[a_i] of the selection at theta, on data that have settled there."""
    weights = np.zeros(len(clients.level))
    weights[np.argsort(-_losses(clients, theta), kind="stable")] = rank_weights(len(clients.level), d, k)
    return weights


def rank_point(clients: Parabolas, d: int, k: int) -> float:
    """Where the mean gradient of the selected clients changes sign: the small-step limit. Needs positive slopes."""
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

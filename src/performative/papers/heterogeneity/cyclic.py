"""Groups of clients that take turns: how fast, with what noise, and where training settles."""

from dataclasses import replace
from typing import Any

import numpy as np

import performative as pf
from performative.papers.heterogeneity.quadratic import Parabolas, continued, order
from performative.papers.outcome import Outcome, lay_out, mean, over
from performative.papers.runs import ends, models, sweep


def groups(
    clients: int, k: int, counts: list[int], rows: int, between: float, within: float, noise: float, factor: float,
    start: float, rounds: int, repeats: int, seed: int, horizons: list[int],
) -> Outcome:  # fmt: skip
    """k clients per round from one of K-bar groups in turn; K-bar = 1 draws from all. GD, SGD and shuffled SGD."""
    rng = np.random.default_rng(seed)
    most = max(counts)
    level = np.repeat(between * rng.standard_normal(most), clients // most) + within * rng.standard_normal(clients)
    table = level[:, None] + noise * rng.standard_normal((clients, rows))
    problem = pf.Problem(
        pf.losses.squared, pf.populations.Database(table, pf.populations.shifts.Linear(np.zeros(clients)))
    )
    optimum = float(table.mean())
    # eta tau ~ log(T) / T, as in the analysis.
    rate = factor * np.log(rounds) / (rounds * rows)
    who = {c: pf.SchemeTwo(k) if c == 1 else pf.Cyclic(c, k=None if c * k == clients else k) for c in counts}
    names: dict[str, dict[str, Any]] = {f"GD, K = {c}": {"participation": scheme} for c, scheme in who.items()}
    names["SGD"] = {"participation": who[most], "batch": pf.Fixed(1)}
    names["shuffled SGD"] = {"participation": who[most], "batch": pf.Shuffled(1)}
    algorithm = pf.fedavg(rate, local_steps=rows, batch=pf.Whole())
    runs = sweep(problem, algorithm, names, rounds, start, seed, repeats, theta="all")
    paths = {name: models(run) for name, run in runs.items()}
    errors = {name: (path - optimum) ** 2 / 2 for name, path in paths.items()}
    last = {name: values[:, -1] for name, values in errors.items()}
    spread = {name: (path[:, -1] - path[:, -1].mean()) ** 2 for name, path in paths.items()}
    means = np.asarray([block.mean() for block in np.array_split(table.mean(axis=1), most)])
    cycles = [_cycle_error(means, T, factor, start) for T in horizons]
    drawn = [_random_error(table.mean(axis=1), k, T, factor, start) for T in horizons]
    small, logs = 1 / np.asarray(horizons, np.float64), np.log(horizons)
    whole = f"GD, K = {most}"
    numbers: dict[str, Any] = {
        "saved_by_cycles": mean(last["GD, K = 1"] - last[whole]),
        "variance_of_all_groups": float(spread[whole].mean()),
        "shuffled_saves": mean(spread["SGD"] - spread["shuffled SGD"]),
        "exponent_cyclic": order(small, np.asarray(cycles) / logs**2),
        "exponent_random": order(small, np.asarray(drawn) / logs),
        "run_of_cycles": float(last[whole].mean()),
        "run_of_cycles_exact": _cycle_error(means, rounds, factor, start, rows),
    }
    data = {
        "error": lay_out({name: _by_cycle(values, most) for name, values in errors.items()}),
        "order": over(horizons, {f"cyclic, K = {most}": cycles, "random": drawn}),
    }
    return Outcome(numbers, data)


def unequal_groups(
    curvature: list[float], level: list[float], reaction: list[float], weights: list[float], rates: list[float],
    start: float, rounds: int,
) -> Outcome:  # fmt: skip
    """The first client is one group, all others the second: unequal weights, but equal numbers of turns."""
    ours = Parabolas.of(curvature, level, reaction, weights)
    even = replace(ours, weights=_evened(ours.weights))
    turns = [[0], list(range(1, len(level)))]
    algorithm = pf.p_fedavg(rates[0], participation=pf.Cyclic(turns))
    settings = {(one, rate): {"rate": rate, "problem": one.problem()} for one in (ours, even) for rate in rates}
    runs = sweep(ours.problem(), algorithm, settings, rounds, start)
    final = np.asarray([float(ends(run)[0]) for run in runs.values()])  # as broadcast to the first group
    gap = np.abs(final[: len(rates)] - ours.stable)
    fair = np.abs(final[len(rates) :] - even.stable)
    exact = [pf.theory.cycle_point(ours.mean, ours.slope, turns, rate, 1, ours.weights) for rate in rates]
    alike = ours.balance(even.weights)
    tiny = pf.theory.cycle_point(ours.mean, ours.slope, turns, 1e-7, 1, ours.weights)
    chosen = even.weights
    pull = float((chosen - ours.weights) @ (ours.mean - ours.slope * ours.stable))
    still = pull / float(chosen @ ours.curvature)  # the shift caused by the same pull if data do not react
    limit = continued(rates, final[: len(rates)])
    numbers: dict[str, Any] = {
        "groups_alike": alike,
        "limit_of_runs": limit,
        "limit_of_small_steps": tiny,
        "share_of_gap_left": float(gap[-1] / abs(alike - ours.stable)),
        "equal_groups_share_left": float(fair[-1] / fair[0]),
        "equal_groups_off": continued(rates, final[len(rates) :] - even.stable),
        "largest_error_of_closed_form": float(np.max(np.abs(final[: len(rates)] / np.asarray(exact) - 1))),
        "amplification": abs(limit[0] - ours.stable) / abs(still),
        "amplification_of_weights": float(chosen @ ours.curvature / (chosen @ ours.slope)),
    }
    return Outcome(numbers, {"gap": over(rates, {"unequal groups": gap, "equal groups": fair})})


def _evened(weights: np.ndarray) -> np.ndarray:
    """Give each group weight one half."""
    rest = weights[1:] / weights[1:].sum() / 2
    return np.append(0.5, rest)


def _by_cycle(values: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """The mean of each cycle: within a cycle the model moves back and forth with the groups."""
    whole = (values.shape[1] - 1) // length
    blocks = values[:, 1 : 1 + whole * length].reshape(len(values), whole, length)
    return length * np.arange(1, whole + 1), blocks.mean(axis=2)


def _cycle_error(means: np.ndarray, rounds: int, factor: float, start: float, tau: int = 1) -> float:
    """F - min F after T rounds of whole groups in turn with eta tau = factor log(T) / T, curvature 1, exactly."""
    step, theta = 1 - (1 - factor * np.log(rounds) / (rounds * tau)) ** tau, start
    for r in range(rounds):
        theta += step * (means[r % len(means)] - theta)
    return float((theta - means.mean()) ** 2 / 2)


def _random_error(level: np.ndarray, k: int, rounds: int, factor: float, start: float) -> float:
    """The same with k clients drawn from all, by exact moments."""
    steps = np.full(rounds, factor * np.log(rounds) / rounds)
    found = pf.theory.gaussian_moments(level, 0.0, 0.0, steps, start=start, scheme="two", k=k)
    return float(found.mse[-1] / 2)

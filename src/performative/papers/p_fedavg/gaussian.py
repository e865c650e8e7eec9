"""Figures on the Gaussian problem: who takes part, how much local work, and what it costs in time."""

import itertools
from typing import Any

import numpy as np

import performative as pf
from performative.papers.outcome import Outcome, curves, lay_out, mean
from performative.papers.p_fedavg.instance import (
    QUIET,
    exact,
    gaussian,
    harmonic_steps,
    limit_of,
    square,
    steps_to,
    thinned,
)


def schemes(
    clients: int, mean_m: float, sensitivity: float, mean_variance: float, sensitivity_variance: float, scale: float,
    beta: float, gamma: float, local_steps: int, k: int, start: float, rounds: int, long_rounds: int, repeats: int,
    seed: int,
) -> Outcome:  # fmt: skip
    """Full participation, Scheme I, Scheme II and a static learner, on one instance and with one luck.

    Simulated for `rounds`; the exact recursion goes on to `long_rounds`.
    """
    problem = gaussian(clients, mean_m, sensitivity, mean_variance, sensitivity_variance, scale, seed)
    algorithm = pf.p_fedavg(pf.schedules.harmonic(beta, gamma), local_steps=local_steps)
    settings: dict[str, dict[str, Any]] = {
        "full": {"participation": pf.Full()},
        "Scheme I": {"participation": pf.SchemeOne(k)},
        "Scheme II": {"participation": pf.SchemeTwo(k)},
        "static FedAvg": {"deploy": pf.fedavg(rate=0.1).deploy},
    }
    swept = pf.sweep(
        problem,
        algorithm,
        list(settings.values()),
        rounds,
        start,
        seed,
        repeats,
        record=pf.Record(theta="last", consensus=False, risks=False),
        **QUIET,
    )
    runs = dict(zip(settings, swept.histories, strict=True))
    stable, static = mean_m / (1 - sensitivity), mean_m + sensitivity * start
    eta = harmonic_steps(beta, gamma, long_rounds, local_steps)
    hows = {"full": {}, "Scheme I": {"scheme": "one", "k": k}, "Scheme II": {"scheme": "two", "k": k}}
    known = {name: exact(problem, eta, local_steps, start, **how) for name, how in hows.items()}
    way = abs(start - stable)
    numbers: dict[str, float | tuple[float, float]] = {
        "start_distance": way,
        "static_point": mean(runs["static FedAvg"].final),
        "static_closed_form": static,
        "static_bias": abs(stable - static),
        "static_distance": mean(runs["static FedAvg"]["distance_to_stable"][:, -1]),
    }
    end = long_rounds * local_steps + gamma
    tenth = [steps_to(moments, way / 10, local_steps) for moments in known.values()]
    for name, moments in known.items():
        word = name.lower().replace(" ", "_")
        last = runs[name]["distance_to_stable"][:, -1]
        numbers[f"distance_{word}"] = mean(last)
        numbers[f"square_{word}"] = square(last, float(moments.mse[rounds]))
        numbers[f"exact_square_{word}"] = float(moments.mse[rounds])
        numbers[f"rms_{word}"] = float(np.sqrt(moments.mse[rounds]))
        numbers[f"rate_{word}"] = float(end * moments.mse[-1] / limit_of(problem, beta, local_steps, **hows[name]))
        numbers[f"slope_{word}"] = _late_slope(moments.mse, local_steps, gamma)
    numbers["scheme_one_to_full"] = numbers["rms_scheme_i"] / numbers["rms_full"]  # type: ignore[operator]  # floats
    numbers["spread_of_time_to_a_tenth"] = max(tenth) / min(tenth)
    numbers["mean_apart"] = max(
        float(np.max(np.abs(known[name].mean - known["full"].mean))) for name in ("Scheme I", "Scheme II")
    )
    numbers["variance_to_full"] = float(known["Scheme II"].variance[-1] / known["full"].variance[-1])
    t = np.arange(long_rounds + 1) * local_steps
    return Outcome(
        numbers,
        {
            "distance": curves(runs, "distance_to_stable", "step"),
            "exact": lay_out({name: thinned(t, moments) for name, moments in known.items()}),
        },
    )


def stragglers(
    clients: int, mean_m: float, sensitivity: float, mean_variance: float, sensitivity_variance: float, scale: float,
    beta: float, gamma: float, counts: list[int], drawn: list[int], longest: float, target: float, start: float,
    horizon: float, long_rounds: int, repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """E = 1; the server waits for the first K of N, who answer after uniform(0, longest); a step takes 1.

    Those `drawn` are simulated, all are known exactly. `target` is a share of the distance at the start.
    """
    problem = gaussian(clients, mean_m, sensitivity, mean_variance, sensitivity_variance, scale, seed)
    latency = pf.participation.UniformLatency(longest)
    # The K-th of N uniform times is K / (N + 1) of the longest on average.
    wait = {k: 1 + longest * k / (clients + 1) for k in counts}
    rounds = {k: round(horizon / wait[k]) for k in counts}
    settings = [{"participation": pf.FirstK(k, latency), "rounds": rounds[k]} for k in drawn]
    algorithm = pf.p_fedavg(pf.schedules.harmonic(beta, gamma), local_steps=1)
    swept = pf.sweep(
        problem,
        algorithm,
        settings,
        rounds[drawn[0]],
        start,
        seed,
        repeats,
        clock=pf.Clock(compute=1.0),
        record=pf.Record(theta="last", consensus=False, risks=False),
        **QUIET,
    )
    runs = dict(zip(drawn, swept.histories, strict=True))
    way = abs(start - mean_m / (1 - sensitivity))
    eta = harmonic_steps(beta, gamma, max(long_rounds, *rounds.values()), 1)
    known = {k: exact(problem, eta, 1, start, scheme="two", k=k) for k in counts}
    numbers: dict[str, float | tuple[float, float]] = {}
    for level, height in {"tenth": way / 10, "target": way * target, "thousandth": way / 1000}.items():
        steps = {k: steps_to(known[k], height, 1) for k in counts}
        times = {k: steps[k] * wait[k] for k in counts}
        numbers[f"best_k_to_{level}"] = float(min(times, key=times.__getitem__))
        if level == "target":
            numbers |= {f"time_{k}": time for k, time in times.items()}
            numbers |= {f"steps_{k}": count for k, count in steps.items()}
            numbers["least_fall"] = max(steps[b] / steps[a] for a, b in itertools.pairwise(counts))
    for k, history in runs.items():
        numbers[f"round_time_{k}"] = mean(history["time"][:, -1] / rounds[k])
        numbers[f"round_time_exact_{k}"] = wait[k]
        numbers[f"square_{k}"] = square(history["distance_to_stable"][:, -1], float(known[k].mse[rounds[k]]))
        numbers[f"square_exact_{k}"] = float(known[k].mse[rounds[k]])
    exact_lines = {f"K = {k}": thinned(np.arange(rounds[k] + 1) * wait[k], known[k]) for k in counts}
    return Outcome(
        numbers,
        {
            "distance": curves({f"K = {k}": history for k, history in runs.items()}, "distance_to_stable", "time"),
            "exact": lay_out(exact_lines),
        },
    )


def local_work(
    clients: int, mean_m: float, sensitivity: float, mean_variance: float, sensitivity_variance: float, scale: float,
    beta: float, gamma: float, local_steps: list[int], drawn: list[int], costs: list[float], target: float,
    start: float, horizon: float, long_steps: int, most_steps: int, repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """E local steps with everyone present; an exchange costs C steps: time = t + C t / E. E = 1 is multi-agent PP.

    Those `drawn` are simulated to the time `horizon` of the first cost, all are known exactly. The best E is sought
    from 1 to `most_steps`, for the given costs, for half a step and for a hundred.
    """
    problem = gaussian(clients, mean_m, sensitivity, mean_variance, sensitivity_variance, scale, seed)
    rate = pf.schedules.harmonic(beta, gamma)
    rounds = {E: max(1, round(horizon / (E + costs[0]))) for E in local_steps}
    settings = [{"local_steps": E, "rounds": rounds[E]} for E in drawn]
    swept = pf.sweep(
        problem,
        pf.p_fedavg(rate),
        settings,
        rounds[drawn[0]],
        start,
        seed,
        repeats,
        record=pf.Record(theta="last", consensus=False, risks=False),
        **QUIET,
    )
    few = min(200, rounds[1])
    other = pf.run(
        problem,
        pf.multi_agent_pp(rate),
        few,
        start,
        seed,
        repeats,
        record=pf.Record(risks=False, theta="last", consensus=False),
        **QUIET,
    )
    same = swept.histories[drawn.index(1)]["distance_to_stable"][:, : few + 1]
    numbers: dict[str, float | tuple[float, float]] = {
        "apart_from_multi_agent": float(np.max(np.abs(other["distance_to_stable"] - same)))
    }
    way = abs(start - mean_m / (1 - sensitivity))
    counts = sorted({*range(1, most_steps + 1), *local_steps})
    known = {E: exact(problem, harmonic_steps(beta, gamma, -(-long_steps // E), E), E, start) for E in counts}
    steps = {E: steps_to(known[E], way * target, E) for E in counts}
    data = {}
    for cost in (*costs, 0.5, 100.0):
        times = {E: steps[E] * (1 + cost / E) for E in counts}
        numbers[f"best_e_c{cost:g}"] = float(min(times, key=times.__getitem__))
        if cost in costs:
            numbers |= {f"time_c{cost:g}_e{E}": times[E] for E in local_steps}
            numbers[f"gain_c{cost:g}"] = times[1] / min(times[E] for E in local_steps if E > 1)
            lines = {E: thinned(np.arange(rounds[E] + 1) * (E + cost), known[E]) for E in local_steps}
            data[f"cost_{cost:g}"] = lay_out({f"E = {E}": line for E, line in lines.items()})
    for E, history in zip(drawn, swept.histories, strict=True):
        # Nobody is left out, so that the drift decides the error; the little luck there is has a known variance.
        value, _ = mean(history["distance_to_stable"][:, -1])
        numbers[f"rms_e{E}"] = value, float(np.sqrt(known[E].variance[rounds[E]] / repeats))
        numbers[f"rms_exact_e{E}"] = float(np.sqrt(known[E].mse[rounds[E]]))
    data["distance"] = curves(
        {f"E = {E}": history for E, history in zip(drawn, swept.histories, strict=True)}, "distance_to_stable", "step"
    )
    return Outcome(numbers, data)


def _late_slope(mse: np.ndarray, local_steps: int, gamma: float) -> float:
    """Slope of log MSE over log(t + gamma) in the last decade."""
    t = np.arange(len(mse)) * local_steps + gamma
    late = np.unique(np.geomspace(max(1, len(mse) // 10), len(mse) - 1, 50).astype(int))
    return float(np.polyfit(np.log(t[late]), np.log(mse[late]), 1)[0])

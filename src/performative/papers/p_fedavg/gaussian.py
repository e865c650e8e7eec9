"""Figures on the Gaussian problem: who takes part, how much local work, and what it costs in time."""

import itertools
from typing import Any

import numpy as np

import performative as pf
from performative.papers.outcome import Outcome, curves, lay_out, mean
from performative.papers.p_fedavg.instance import SCHEMES, Study, by_step, on_gaussian, square, taking_part
from performative.papers.runs import distance, power, quiet, word


@on_gaussian
def schemes(s: Study, k: int) -> Outcome:
    """Full participation, Scheme I, Scheme II and a static learner, on one instance, with common random numbers."""
    settings: dict[str, Any] = {name: {"participation": taking_part(name, k)} for name in SCHEMES}
    runs = s.sweep(settings | {"static FedAvg": {"deploy": pf.fedavg(rate=0.1).deploy}})
    known = {name: s.exact(scheme, k) for name, scheme in SCHEMES.items()}
    fixed, static = runs["static FedAvg"], s.mean_m + s.sensitivity * s.start
    tenth = [s.steps_to(moments, s.way / 10) for moments in known.values()]
    numbers: dict[str, Any] = {
        "start_distance": s.way,
        "static_point": mean(fixed.final),
        "static_closed_form": static,
        "static_bias": abs(s.stable - static),
        "static_distance": mean(fixed["distance_to_stable"][:, -1]),
        "spread_of_time_to_a_tenth": max(tenth) / min(tenth),
        "mean_apart": max(float(np.max(np.abs(one.mean - known["full"].mean))) for one in known.values()),
        "variance_to_full": float(known["Scheme II"].variance[-1] / known["full"].variance[-1]),
    }
    for name, moments in known.items():
        expected, end = float(moments.mse[s.rounds]), s.long_rounds * s.local_steps + s.gamma
        numbers |= {
            f"distance_{word(name)}": mean(runs[name]["distance_to_stable"][:, -1]),
            f"square_{word(name)}": square(runs[name], expected),
            f"exact_square_{word(name)}": expected,
            f"rms_{word(name)}": float(np.sqrt(moments.mse[s.rounds])),
            f"rate_{word(name)}": float(end * moments.mse[-1] / s.limit(SCHEMES[name], k)),
            f"slope_{word(name)}": _late_slope(moments.mse, s),
        }
    numbers["scheme_one_to_full"] = numbers["rms_scheme_i"] / numbers["rms_full"]
    lines = {name: s.line(moments) for name, moments in known.items()}
    return Outcome(numbers, {"distance": by_step(runs), "exact": lay_out(lines)})


@on_gaussian
def stragglers(s: Study, counts: list[int], drawn: list[int], longest: float, target: float, horizon: float) -> Outcome:
    """E = 1; the server waits for the first K of N, who answer after uniform(0, longest); a step takes 1.

    Those `drawn` are simulated, all are known exactly. `target` is a share of the distance at the start.
    """
    latency = pf.participation.UniformLatency(longest)
    # The K-th of N uniform times is K / (N + 1) of the longest on average.
    wait = {k: 1 + longest * k / (s.clients + 1) for k in counts}
    rounds = {k: round(horizon / wait[k]) for k in counts}
    settings = {k: {"participation": pf.FirstK(k, latency), "rounds": rounds[k]} for k in drawn}
    runs = s.sweep(settings, clock=pf.Clock(compute=1.0))
    longer = s.of_steps(1, max(s.long_rounds, *rounds.values()))
    known = {k: longer.exact("two", k) for k in counts}
    numbers: dict[str, Any] = {}
    for level, height in {"tenth": s.way / 10, "target": s.way * target, "thousandth": s.way / 1000}.items():
        steps = {k: s.steps_to(known[k], height) for k in counts}
        times = {k: steps[k] * wait[k] for k in counts}
        numbers[f"best_k_to_{level}"] = float(min(times, key=times.__getitem__))
        if level == "target":
            numbers |= {f"time_{k}": time for k, time in times.items()}
            numbers |= {f"steps_{k}": count for k, count in steps.items()}
            numbers["least_fall"] = max(steps[b] / steps[a] for a, b in itertools.pairwise(counts))
    for k, run in runs.items():
        expected = float(known[k].mse[rounds[k]])
        numbers |= {f"square_{k}": square(run, expected), f"square_exact_{k}": expected}
        numbers |= {f"round_time_{k}": mean(run["time"][:, -1] / rounds[k]), f"round_time_exact_{k}": wait[k]}
    lines = {f"K = {k}": s.line(known[k], np.arange(rounds[k] + 1) * wait[k]) for k in counts}
    shown = curves({f"K = {k}": run for k, run in runs.items()}, "distance_to_stable", "time")
    return Outcome(numbers, {"distance": shown, "exact": lay_out(lines)})


@on_gaussian
def local_work(
    s: Study, local_steps: list[int], drawn: list[int], costs: list[float], target: float, horizon: float,
    long_steps: int, most_steps: int,
) -> Outcome:  # fmt: skip
    """E local steps with everyone present; an exchange costs C steps: time = t + C t / E. E = 1 is multi-agent PP.

    Those `drawn` are simulated to the time `horizon` of the first cost, all are known exactly. The best E is sought
    from 1 to `most_steps`, for the given costs, for half a step and for a hundred.
    """
    rounds = {E: max(1, round(horizon / (E + costs[0]))) for E in local_steps}
    runs = s.sweep({E: {"local_steps": E, "rounds": rounds[E]} for E in drawn})
    few = min(200, rounds[1])
    other = pf.run(s.problem, pf.multi_agent_pp(s.rate), few, s.start, s.seed, s.repeats, **quiet())
    same = runs[1]["distance_to_stable"][:, : few + 1]
    numbers: dict[str, Any] = {"apart_from_multi_agent": float(np.max(np.abs(other["distance_to_stable"] - same)))}
    counts = sorted({*range(1, most_steps + 1), *local_steps})
    known = {E: s.of_steps(E, long_steps).exact() for E in counts}
    steps = {E: s.of_steps(E, long_steps).steps_to(known[E], s.way * target) for E in counts}
    data = {}
    for cost in (*costs, 0.5, 100.0):
        times = {E: steps[E] * (1 + cost / E) for E in counts}
        numbers[f"best_e_c{cost:g}"] = float(min(times, key=times.__getitem__))
        if cost in costs:
            numbers |= {f"time_c{cost:g}_e{E}": times[E] for E in local_steps}
            numbers[f"gain_c{cost:g}"] = times[1] / min(times[E] for E in local_steps if E > 1)
            lines = {f"E = {E}": s.line(known[E], np.arange(rounds[E] + 1) * (E + cost)) for E in local_steps}
            data[f"cost_{cost:g}"] = lay_out(lines)
    for E, run in runs.items():
        # Nobody is left out, so that the drift decides the error; the little luck there is has a known variance.
        error = float(np.sqrt(known[E].variance[rounds[E]] / s.repeats))
        numbers[f"rms_e{E}"] = mean(distance(run)[:, -1])[0], error
        numbers[f"rms_exact_e{E}"] = float(np.sqrt(known[E].mse[rounds[E]]))
    data["distance"] = by_step({f"E = {E}": run for E, run in runs.items()})
    return Outcome(numbers, data)


def _late_slope(mse: np.ndarray, s: Study) -> float:
    """Slope of log MSE over log(t + gamma) in the last decade."""
    last = np.unique(np.geomspace(max(1, len(mse) // 10), len(mse) - 1, 50).astype(int))
    return power((s.t + s.gamma)[last], mse[last])

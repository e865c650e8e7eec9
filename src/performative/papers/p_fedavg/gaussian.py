"""Figures on the Gaussian problem: participation, local work, and their cost in time."""

import itertools
from typing import Any

import numpy as np

import performative as pf
from performative.papers.outcome import Outcome, curves, lay_out, mean
from performative.papers.p_fedavg.instance import SCHEMES, Study, by_step, fall, on_gaussian, ratio, square, taking_part
from performative.papers.runs import distance, ends, word

# Target accuracies, as fractions of the initial distance, at which speed is measured: the paper gives none.
SHARES = (0.5, 0.1, 0.01)


@on_gaussian
def schemes(s: Study, k: int) -> Outcome:
    """Full participation, Scheme I, Scheme II and a static learner, on one instance, with common random numbers."""
    settings: dict[str, Any] = {name: {"participation": taking_part(name, k)} for name in SCHEMES}
    runs = s.sweep(settings | {"static FedAvg": {"deploy": pf.fedavg(rate=0.1).deploy}})
    known = {name: s.exact(scheme, k) for name, scheme in SCHEMES.items()}
    fixed, static = runs["static FedAvg"], s.mean_m + s.sensitivity * s.start
    away, times, last = distance(fixed), s.times(known, SHARES), {name: ends(runs[name]) for name in SCHEMES}
    spread = last["Scheme II"].var(ddof=1) / last["full"].var(ddof=1)
    numbers: dict[str, Any] = s.marks | {
        "static_point": mean(fixed.final),
        "static_closed_form": static,
        "static_bias": abs(s.stable - static),
        "static_stays": ratio(away[:, -1], away[:, away.shape[1] // 5]),
        "spread_of_time_to_a_tenth": max(t[1] for t in times.values()) / min(t[1] for t in times.values()),
        "least_time_two_to_full": float(np.min(times["Scheme II"] / times["full"])),
        # A variance of n normal numbers has the relative error sqrt(2 / (n - 1)); there are two.
        "variance_to_full": (spread, spread * float(np.sqrt(4 / (s.repeats - 1)))),
    }
    for name, moments in known.items():
        # t MSE over its limit tends to 1: its deviation at the end over that after a tenth of the rounds.
        off = np.abs((s.t + s.gamma) * moments.mse / s.limit(SCHEMES[name], k) - 1)
        expected, key = float(moments.mse[s.rounds]), word(name)
        numbers |= {f"fall_{key}": fall(runs[name]), f"off_limit_{key}": float(off[-1] / off[len(off) // 10])}
        numbers |= {f"square_{key}": square(runs[name], expected), f"exact_square_{key}": expected}
        numbers |= {f"rms_{key}": expected**0.5, f"mean_apart_{key}": mean(last[name] - last["full"])}
    lines = {name: s.line(moments) for name, moments in known.items()}
    return Outcome(numbers, {"distance": by_step(runs), "exact": lay_out(lines)})


@on_gaussian
def stragglers(s: Study, counts: list[int], drawn: list[int], longest: float, horizon: float) -> Outcome:
    """E = 1; the server waits for the first K of N clients, who answer after uniform(0, longest); a step takes 1.

    Those in `drawn` are simulated; all are known exactly.
    """
    latency = pf.participation.UniformLatency(longest)
    # The K-th of N uniform times is K / (N + 1) of the longest on average.
    wait = {k: 1 + longest * k / (s.clients + 1) for k in counts}
    rounds = {k: round(horizon / wait[k]) for k in counts}
    settings = {k: {"participation": pf.FirstK(k, latency), "rounds": rounds[k]} for k in drawn}
    runs = s.sweep(settings, clock=pf.Clock(compute=1.0))
    longer = s.of_steps(1, max(s.long_rounds, *rounds.values()))
    known = {k: longer.exact("two", k) for k in counts}
    steps = s.times(known, SHARES[1:])
    times = {k: steps[k] * wait[k] for k in counts}
    inner = np.min([times[k] for k in counts[1:-1]], axis=0)
    numbers: dict[str, Any] = s.marks | {
        # A K that is neither smallest nor largest, at the accuracy where it does best.
        "inner_over_ends": float(np.min(inner / np.minimum(times[counts[0]], times[counts[-1]]))),
        "inner_over_all": float(np.min(inner / times[counts[-1]])),
        "largest_step_ratio": max(float(np.max(steps[b] / steps[a])) for a, b in itertools.pairwise(counts)),
    }
    for k, run in runs.items():
        expected = float(known[k].mse[rounds[k]])
        numbers |= {f"square_{k}": square(run, expected), f"square_exact_{k}": expected}
        numbers |= {f"round_time_{k}": mean(run["time"][:, -1] / rounds[k]), f"round_time_exact_{k}": wait[k]}
    lines = {f"K = {k}": s.line(known[k], np.arange(rounds[k] + 1) * wait[k]) for k in counts}
    shown = curves({f"K = {k}": run for k, run in runs.items()}, "distance_to_stable", "time")
    return Outcome(numbers, {"distance": shown, "exact": lay_out(lines)})


@on_gaussian
def local_work(
    s: Study, local_steps: list[int], costs: list[float], horizon: float, long_steps: int, most_steps: int
) -> Outcome:
    """E local steps with full participation; communication costs C steps: time = t + C t / E. E = 1: multi-agent PP.

    Simulated until time `horizon` of the first cost. The best E is searched from 1 to `most_steps`.
    """
    rounds = {E: max(1, round(horizon / (E + costs[0]))) for E in local_steps}
    runs = s.sweep({E: {"local_steps": E, "rounds": rounds[E]} for E in local_steps})
    counts = np.arange(1, most_steps + 1)
    known = {E: s.of_steps(E, long_steps).exact() for E in counts.tolist()}
    # Steps to 10, 1 and 0.5% of the initial distance, [accuracies, counts].
    steps = np.array([s.of_steps(E, 1).times({E: known[E]}, (0.1, 0.01, 0.005))[E] for E in known]).T
    numbers: dict[str, Any] = dict(s.marks)
    data, best = {}, {}
    for cost in costs:
        times = steps * (1 + cost / counts)
        # Time of E = 1 over the better of the paper's E > 1; and an intermediate E over both ends of the range.
        gain = times[:, 0] / np.min([times[:, E - 1] for E in local_steps if E > 1], axis=0)
        middle = times[:, 1:-1].min(axis=1) / np.minimum(times[:, 0], times[:, -1])
        numbers |= {f"gain_c{cost:g}": float(gain[:2].min()), f"gain_fine_c{cost:g}": float(gain[2])}
        numbers[f"middle_c{cost:g}"], best[cost] = float(middle[:2].max()), counts[times.argmin(axis=1)]
        lines = {f"E = {E}": s.line(known[E], np.arange(rounds[E] + 1) * (E + cost)) for E in local_steps}
        data[f"cost_{cost:g}"] = lay_out(lines)
    numbers["best_e_growth"] = float(np.max(best[costs[0]] - best[costs[1]]))
    for E, run in runs.items():
        # With full participation drift dominates the error; the little randomness left has a known variance.
        numbers[f"model_e{E}"] = mean(ends(run))[0], float(np.sqrt(known[E].variance[rounds[E]] / s.repeats))
        numbers[f"exact_model_e{E}"] = float(known[E].mean[rounds[E]])
        # Every local step takes one sample of each client, and every client sends one update a round.
        steps_taken, sent = (float(run[what][0, -1]) / s.clients for what in ("samples", "uploads"))
        numbers |= {f"exchanges_e{E}": 2 * sent, f"two_t_over_e{E}": 2.0 * (steps_taken // E)}
    data["distance"] = by_step({f"E = {E}": run for E, run in runs.items()})
    return Outcome(numbers, data)

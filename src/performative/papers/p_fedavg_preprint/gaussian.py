"""Figures 2, 3, 4 and 6: the Gaussian problem with more local work, fewer clients, unlike clients, a constant step."""

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
    square,
    steps_to,
    thinned,
)
from performative.theory import Moments

PARTS = {"one": pf.SchemeOne, "two": pf.SchemeTwo}
NAMES = {"one": "Scheme I", "two": "Scheme II"}


def local_steps(
    clients: int, mean_m: float, sensitivity: float, mean_variance: float, sensitivity_variance: float, scale: float,
    beta: float, gamma: float, k: int, counts: list[int], drawn: list[list[Any]], start: float, steps: int,
    long_steps: int, repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """Figure 2: E local steps under both schemes. Those `drawn` (scheme, E) are simulated, all are known exactly."""
    problem = gaussian(clients, mean_m, sensitivity, mean_variance, sensitivity_variance, scale, seed)
    algorithm = pf.p_fedavg(pf.schedules.harmonic(beta, gamma))
    settings = [{"participation": PARTS[scheme](k), "local_steps": E, "rounds": -(-steps // E)} for scheme, E in drawn]
    swept = pf.sweep(
        problem,
        algorithm,
        settings,
        steps,
        start,
        seed,
        repeats,
        record=pf.Record(theta="last", consensus=False, risks=False),
        **QUIET,
    )
    way = abs(start - mean_m / (1 - sensitivity))
    numbers: dict[str, float | tuple[float, float]] = {}
    data = {}
    known: dict[tuple[str, int], Moments] = {}
    for scheme in PARTS:
        lines = {}
        for E in counts:
            eta = harmonic_steps(beta, gamma, -(-long_steps // E), E)
            known[scheme, E] = exact(problem, eta, E, start, scheme=scheme, k=k)
            numbers[f"steps_{scheme}_{E}"] = steps_to(known[scheme, E], way / 10, E)
            lines[f"E = {E}"] = thinned(np.arange(len(known[scheme, E].mse)) * E, known[scheme, E])
        data[scheme] = lay_out(lines)
    for (scheme, E), history in zip(drawn, swept.histories, strict=True):
        expected = float(known[scheme, E].mse[int(history.rounds[-1])])
        numbers[f"square_{scheme}_{E}"] = square(history["distance_to_stable"][:, -1], expected)
        numbers[f"exact_{scheme}_{E}"] = expected
    labels = [f"{NAMES[scheme]}, E = {E}" for scheme, E in drawn]
    data["distance"] = curves(dict(zip(labels, swept.histories, strict=True)), "distance_to_stable", "step")
    return Outcome(numbers, data)


def participants(
    clients: int, mean_m: float, sensitivity: float, mean_variance: float, sensitivity_variance: float, scale: float,
    beta: float, gamma: float, local_steps: int, counts: list[int], drawn: list[list[Any]], start: float,
    rounds: int, long_rounds: int, repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """Figure 3: K clients a round, both schemes. Those `drawn` (scheme, K) are simulated, all are known exactly."""
    problem = gaussian(clients, mean_m, sensitivity, mean_variance, sensitivity_variance, scale, seed)
    algorithm = pf.p_fedavg(pf.schedules.harmonic(beta, gamma), local_steps=local_steps)
    settings = [{"participation": PARTS[scheme](k)} for scheme, k in drawn]
    swept = pf.sweep(
        problem,
        algorithm,
        settings,
        rounds,
        start,
        seed,
        repeats,
        record=pf.Record(theta="last", consensus=False, risks=False),
        **QUIET,
    )
    way = abs(start - mean_m / (1 - sensitivity))
    eta, t = harmonic_steps(beta, gamma, long_rounds, local_steps), np.arange(long_rounds + 1) * local_steps
    numbers: dict[str, float | tuple[float, float]] = {}
    data = {}
    for scheme in PARTS:
        known = {k: exact(problem, eta, local_steps, start, scheme=scheme, k=k) for k in counts}
        final = {k: float(np.sqrt(moments.mse[-1])) for k, moments in known.items()}
        tenth = {k: steps_to(moments, way / 10, local_steps) for k, moments in known.items()}
        numbers |= {f"rms_{scheme}_{k}": value for k, value in final.items()}
        numbers[f"least_fall_{scheme}"] = max(final[b] / final[a] for a, b in itertools.pairwise(counts))
        numbers[f"spread_of_time_{scheme}"] = max(tenth.values()) / min(tenth.values())
        data[scheme] = lay_out({f"K = {k}": thinned(t, moments) for k, moments in known.items()})
        for (other, k), history in zip(drawn, swept.histories, strict=True):
            if other == scheme:
                expected = float(known[k].mse[rounds])
                numbers[f"square_{scheme}_{k}"] = square(history["distance_to_stable"][:, -1], expected)
                numbers[f"exact_{scheme}_{k}"] = expected
    numbers["few_over_many_one"] = numbers[f"rms_one_{counts[0]}"] / numbers["rms_one_20"]  # type: ignore[operator]  # plain numbers
    labels = [f"{NAMES[scheme]}, K = {k}" for scheme, k in drawn]
    data["distance"] = curves(dict(zip(labels, swept.histories, strict=True)), "distance_to_stable", "step")
    return Outcome(numbers, data)


def heterogeneity(
    clients: int, mean_m: float, sensitivity: float, cases: dict[str, list[float]], scale: float, beta: float,
    gamma: float, local_steps: int, k: int, drawn: list[str], start: float, rounds: int, long_rounds: int,
    repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """Figure 4: clients that differ in m_i or in eps_i. cases: {name: [Var(m), Var(eps)]}.

    The schemes `drawn` are simulated, both are known exactly.
    """
    problems = {name: gaussian(clients, mean_m, sensitivity, m, eps, scale, seed) for name, (m, eps) in cases.items()}
    labels = {name: f"Var(m) = {spread[0]:g}, Var(eps) = {spread[1]:g}" for name, spread in cases.items()}
    algorithm = pf.p_fedavg(pf.schedules.harmonic(beta, gamma), local_steps=local_steps)
    pairs = [(scheme, name) for scheme in drawn for name in cases]
    settings = [{"participation": PARTS[scheme](k), "problem": problems[name]} for scheme, name in pairs]
    first = next(iter(problems.values()))
    swept = pf.sweep(
        first,
        algorithm,
        settings,
        rounds,
        start,
        seed,
        repeats,
        record=pf.Record(theta="last", consensus=False, risks=False),
        **QUIET,
    )
    eta, t = harmonic_steps(beta, gamma, long_rounds, local_steps), np.arange(long_rounds + 1) * local_steps
    numbers: dict[str, float | tuple[float, float]] = {}
    known, data = {}, {}
    for scheme in PARTS:
        for name, problem in problems.items():
            known[scheme, name] = exact(problem, eta, local_steps, start, scheme=scheme, k=k)
        final = {name: float(np.sqrt(known[scheme, name].mse[-1])) for name in cases}
        numbers |= {f"rms_{scheme}_{name}": value for name, value in final.items()}
        numbers |= {f"effect_{scheme}_{what}": final[f"wide_{what}"] / final[f"narrow_{what}"] for what in ("m", "eps")}
        data[scheme] = lay_out({labels[name]: thinned(t, known[scheme, name]) for name in cases})
    runs = {}
    for (scheme, name), history in zip(pairs, swept.histories, strict=True):
        expected = float(known[scheme, name].mse[rounds])
        numbers[f"square_{scheme}_{name}"] = square(history["distance_to_stable"][:, -1], expected)
        numbers[f"exact_{scheme}_{name}"] = expected
        if scheme == drawn[0]:
            runs[labels[name]] = history
    data["distance"] = curves(runs, "distance_to_stable", "step")
    return Outcome(numbers, data)


def constant_step(
    clients: int, mean_m: float, sensitivity: float, mean_variance: float, sensitivity_variance: float, scale: float,
    rate: float, local_steps: int, start: float, rounds: int, repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """Figure 6: a step that does not decay, everyone present. Beside it E = 1 with the same step, exactly."""
    problem = gaussian(clients, mean_m, sensitivity, mean_variance, sensitivity_variance, scale, seed)
    history = pf.run(
        problem,
        pf.p_fedavg(rate, local_steps=local_steps),
        rounds,
        start,
        seed,
        repeats,
        record=pf.Record(risks=False, theta="last", consensus=False),
        **QUIET,
    )
    known = exact(problem, np.full(rounds * local_steps, rate), local_steps, start)
    single = exact(problem, np.full(rounds * local_steps, rate), 1, start)
    last = np.asarray(history["distance_to_stable"][:, -1], np.float64)
    t = np.arange(rounds + 1) * local_steps
    return Outcome(
        {
            "final_distance": mean(last),
            "final_model": (mean(history.final)[0], float(np.sqrt(known.variance[-1] / repeats))),
            "fixed_point": float(known.mean[-1]),
            "stable_point": mean_m / (1 - sensitivity),
            "share_of_noise": float(np.sqrt(known.variance[-1] / known.mse[-1])),
            "rms_one_step": float(np.sqrt(single.mse[-1])),
            "bias_one_step": abs(float(single.mean[-1]) - mean_m / (1 - sensitivity)),
        },
        {
            "distance": curves({f"E = {local_steps}": history}, "distance_to_stable", "step"),
            "exact": lay_out(
                {
                    f"E = {local_steps}": thinned(t, known),
                    "E = 1": thinned(np.arange(rounds * local_steps + 1), single),
                }
            ),
        },
    )

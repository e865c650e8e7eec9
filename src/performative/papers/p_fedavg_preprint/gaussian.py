"""Figures 2, 3, 4 and 6: the Gaussian problem with more local work, fewer clients, unlike clients, a constant step."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np

import performative as pf
from performative.papers.outcome import Outcome, lay_out, mean
from performative.papers.p_fedavg.instance import NAMES, Study, by_step, on_gaussian, square, taking_part
from performative.papers.runs import quiet
from performative.theory import Moments

DRAWN = ("one", "two")  # the schemes that draw


@on_gaussian
def local_steps(s: Study, k: int, counts: list[int], drawn: list[Any], steps: int, long_steps: int) -> Outcome:
    """Figure 2: E local steps under both schemes. Those `drawn` (scheme, E) are simulated, all are known exactly."""
    runs = s.sweep({
        (scheme, E): {"participation": taking_part(scheme, k), "local_steps": E, "rounds": -(-steps // E)}
        for scheme, E in drawn
    })  # fmt: skip
    numbers: dict[str, Any] = {}
    known: dict[tuple[str, int], Moments] = {}
    data, own = {}, {E: s.of_steps(E, long_steps) for E in counts}
    for scheme in DRAWN:
        known |= {(scheme, E): own[E].exact(scheme, k) for E in counts}
        numbers |= {f"steps_{scheme}_{E}": own[E].steps_to(known[scheme, E], s.way / 10) for E in counts}
        data[scheme] = lay_out({f"E = {E}": own[E].line(known[scheme, E]) for E in counts})
    for (scheme, E), run in runs.items():
        expected = float(known[scheme, E].mse[int(run.rounds[-1])])
        numbers |= {f"square_{scheme}_{E}": square(run, expected), f"exact_{scheme}_{E}": expected}
    data["distance"] = by_step({f"{NAMES[scheme]}, E = {E}": run for (scheme, E), run in runs.items()})
    return Outcome(numbers, data)


@on_gaussian
def participants(s: Study, counts: list[int], drawn: list[Any]) -> Outcome:
    """Figure 3: K clients a round, both schemes. Those `drawn` (scheme, K) are simulated, all are known exactly."""
    runs = s.sweep({(scheme, k): {"participation": taking_part(scheme, k)} for scheme, k in drawn})
    numbers: dict[str, Any] = {}
    data = {}
    for scheme in DRAWN:
        known = {k: s.exact(scheme, k) for k in counts}
        final = {k: float(np.sqrt(moments.mse[-1])) for k, moments in known.items()}
        tenth = [s.steps_to(moments, s.way / 10) for moments in known.values()]
        numbers |= {f"rms_{scheme}_{k}": value for k, value in final.items()}
        numbers[f"least_fall_{scheme}"] = max(final[b] / final[a] for a, b in itertools.pairwise(counts))
        numbers[f"spread_of_time_{scheme}"] = max(tenth) / min(tenth)
        data[scheme] = lay_out({f"K = {k}": s.line(moments) for k, moments in known.items()})
        for k in (k for other, k in runs if other == scheme):
            expected = float(known[k].mse[s.rounds])
            numbers |= {f"square_{scheme}_{k}": square(runs[scheme, k], expected), f"exact_{scheme}_{k}": expected}
    numbers["few_over_many_one"] = numbers[f"rms_one_{counts[0]}"] / numbers["rms_one_20"]
    data["distance"] = by_step({f"{NAMES[scheme]}, K = {k}": run for (scheme, k), run in runs.items()})
    return Outcome(numbers, data)


@on_gaussian
def heterogeneity(s: Study, cases: dict[str, list[float]], k: int, drawn: list[str]) -> Outcome:
    """Figure 4: clients that differ in m_i or in eps_i. cases: {name: [Var(m), Var(eps)]}.

    The schemes `drawn` are simulated, both are known exactly.
    """
    own = {name: replace(s, mean_variance=m, sensitivity_variance=eps) for name, (m, eps) in cases.items()}
    labels = {name: f"Var(m) = {m:g}, Var(eps) = {eps:g}" for name, (m, eps) in cases.items()}
    runs = next(iter(own.values())).sweep({
        (scheme, name): {"participation": taking_part(scheme, k), "problem": own[name].problem}
        for scheme in drawn for name in cases
    })  # fmt: skip
    numbers: dict[str, Any] = {}
    known: dict[tuple[str, str], Moments] = {}
    data = {}
    for scheme in DRAWN:
        known |= {(scheme, name): one.exact(scheme, k) for name, one in own.items()}
        final = {name: float(np.sqrt(known[scheme, name].mse[-1])) for name in cases}
        numbers |= {f"rms_{scheme}_{name}": value for name, value in final.items()}
        numbers |= {f"effect_{scheme}_{what}": final[f"wide_{what}"] / final[f"narrow_{what}"] for what in ("m", "eps")}
        data[scheme] = lay_out({labels[name]: s.line(known[scheme, name]) for name in cases})
    for (scheme, name), run in runs.items():
        expected = float(known[scheme, name].mse[s.rounds])
        numbers |= {f"square_{scheme}_{name}": square(run, expected), f"exact_{scheme}_{name}": expected}
    data["distance"] = by_step({labels[name]: runs[drawn[0], name] for name in cases})
    return Outcome(numbers, data)


@on_gaussian
def constant_step(s: Study, rate: float) -> Outcome:
    """Figure 6: a step that does not decay, everyone present. Beside it E = 1 with the same step, exactly."""
    algorithm = pf.p_fedavg(rate, local_steps=s.local_steps)
    run = pf.run(s.problem, algorithm, s.rounds, s.start, s.seed, s.repeats, **quiet())
    whole, single = replace(s, long_rounds=s.rounds), s.of_steps(1, s.rounds * s.local_steps)
    eta = np.full(s.rounds * s.local_steps, rate)
    known, alone = whole.exact(eta=eta), single.exact(eta=eta)
    numbers: dict[str, Any] = {
        "final_distance": mean(run["distance_to_stable"][:, -1]),
        "final_model": (mean(run.final)[0], float(np.sqrt(known.variance[-1] / s.repeats))),
        "fixed_point": float(known.mean[-1]),
        "stable_point": s.stable,
        "share_of_noise": float(np.sqrt(known.variance[-1] / known.mse[-1])),
        "rms_one_step": float(np.sqrt(alone.mse[-1])),
        "bias_one_step": abs(float(alone.mean[-1]) - s.stable),
    }
    name = f"E = {s.local_steps}"
    exact = lay_out({name: whole.line(known), "E = 1": single.line(alone)})
    return Outcome(numbers, {"distance": by_step({name: run}), "exact": exact})

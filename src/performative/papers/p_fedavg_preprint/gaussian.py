"""Figures 2, 3, 4 and 6: the Gaussian problem with more local work, fewer or heterogeneous clients, constant steps."""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

import performative as pf
from performative.history import History
from performative.papers.outcome import Outcome, lay_out, mean
from performative.papers.p_fedavg.instance import NAMES, Study, by_step, fall, on_gaussian, square, taking_part
from performative.papers.runs import ends, quiet
from performative.theory import Moments

DRAWN = ("one", "two")  # the schemes that sample clients
Known = Mapping[tuple[str, Any], Moments]


def _compared(runs: Mapping[tuple[str, Any], History], known: Known) -> dict[str, Any]:
    """Mean squared final distances and their exact values, by scheme and setting."""
    numbers: dict[str, Any] = {}
    for (scheme, name), run in runs.items():
        expected = float(known[scheme, name].mse[int(run.rounds[-1])])
        numbers |= {f"square_{scheme}_{name}": square(run, expected), f"exact_{scheme}_{name}": expected}
    return numbers


@on_gaussian
def local_steps(s: Study, k: int, counts: list[int], drawn: list[int], steps: int, long_steps: int) -> Outcome:
    """Figure 2: E local steps under both schemes. Those in `drawn` are simulated; all are known exactly."""
    runs = s.sweep({
        (scheme, E): {"participation": taking_part(scheme, k), "local_steps": E, "rounds": -(-steps // E)}
        for scheme in DRAWN for E in drawn
    })  # fmt: skip
    own = {E: s.of_steps(E, long_steps) for E in counts}
    known = {(scheme, E): own[E].exact(scheme, k) for scheme in DRAWN for E in counts}
    numbers = s.marks | _compared(runs, known)
    numbers |= {f"steps_{scheme}_{E}": own[E].steps_to(moments, s.way / 10) for (scheme, E), moments in known.items()}
    data = {one: lay_out({f"E = {E}": own[E].line(known[one, E]) for E in counts}) for one in DRAWN}
    data["distance"] = by_step({f"{NAMES[scheme]}, E = {E}": run for (scheme, E), run in runs.items()})
    return Outcome(numbers, data)


@on_gaussian
def participants(s: Study, counts: list[int], drawn: list[int]) -> Outcome:
    """Figure 3: K clients per round, both schemes. Those in `drawn` are simulated; all are known exactly."""
    runs = s.sweep({(scheme, k): {"participation": taking_part(scheme, k)} for scheme in DRAWN for k in drawn})
    known = {(scheme, k): s.exact(scheme, k) for scheme in DRAWN for k in counts}
    numbers: dict[str, Any] = s.marks | _compared(runs, known)
    for scheme in DRAWN:
        final = [float(np.sqrt(known[scheme, k].mse[-1])) for k in counts]
        tenth = [s.steps_to(known[scheme, k], s.way / 10) for k in counts]
        numbers |= {f"rms_{scheme}_{k}": value for k, value in zip(counts, final, strict=True)}
        numbers[f"largest_ratio_{scheme}"] = max(b / a for a, b in itertools.pairwise(final))
        numbers[f"spread_of_time_{scheme}"] = max(tenth) / min(tenth)
    data = {one: lay_out({f"K = {k}": s.line(known[one, k]) for k in counts}) for one in DRAWN}
    data["distance"] = by_step({f"{NAMES[scheme]}, K = {k}": run for (scheme, k), run in runs.items()})
    return Outcome(numbers, data)


@on_gaussian
def heterogeneity(s: Study, cases: dict[str, list[float]], k: int) -> Outcome:
    """Figure 4: clients that differ in m_i or in eps_i. cases: {name: [Var(m), Var(eps)]}."""
    own = {name: replace(s, mean_variance=m, sensitivity_variance=eps) for name, (m, eps) in cases.items()}
    labels = {name: f"Var(m) = {m:g}, Var(eps) = {eps:g}" for name, (m, eps) in cases.items()}
    runs = next(iter(own.values())).sweep({
        (scheme, name): {"participation": taking_part(scheme, k), "problem": own[name].problem}
        for scheme in DRAWN for name in cases
    })  # fmt: skip
    known = {(scheme, name): one.exact(scheme, k) for scheme in DRAWN for name, one in own.items()}
    numbers: dict[str, Any] = _compared(runs, known)
    data = {}
    for scheme in DRAWN:
        final = {name: float(np.sqrt(known[scheme, name].mse[-1])) for name in cases}
        numbers |= {f"rms_{scheme}_{name}": value for name, value in final.items()}
        numbers |= {f"effect_{scheme}_{what}": final[f"wide_{what}"] / final[f"narrow_{what}"] for what in ("m", "eps")}
        numbers[f"fall_{scheme}"] = fall(runs[scheme, "wide_eps"])
        data[scheme] = lay_out({labels[name]: s.line(known[scheme, name]) for name in cases})
    data["distance"] = by_step({f"{NAMES[scheme]}, {labels[name]}": run for (scheme, name), run in runs.items()})
    return Outcome(numbers, data)


@on_gaussian
def constant_step(s: Study, rate: float) -> Outcome:
    """Figure 6: a constant step, full participation. For comparison: E = 1 with the same step, exactly."""
    algorithm = pf.p_fedavg(rate, local_steps=s.local_steps)
    run = pf.run(s.problem, algorithm, s.rounds, s.start, s.seed, s.repeats, **quiet())
    whole, single = replace(s, long_rounds=s.rounds), s.of_steps(1, s.rounds * s.local_steps)
    eta = np.full(s.rounds * s.local_steps, rate)
    known, alone = whole.exact(eta=eta), single.exact(eta=eta)
    last, error = mean(ends(run))[0], float(np.sqrt(known.variance[-1] / s.repeats))
    kappa, noise = 1 - s.sensitivity, s.scale**2 * float(np.sum(s.own["weights"] ** 2))
    numbers: dict[str, Any] = s.marks | {
        "final_distance": (abs(last - s.stable), error),
        "final_model": (last, error),
        "fixed_point": float(known.mean[-1]),
        "noise_over_bias": float(known.variance[-1] / (known.mean[-1] - s.stable) ** 2),
        # With E = 1 the variance stays at eta sum_i p_i^2 scale^2 / (kappa (2 - eta kappa)).
        "variance_one_step": float(alone.variance[-1]) / (rate * noise / (kappa * (2 - rate * kappa))),
    }
    name = f"E = {s.local_steps}"
    exact = lay_out({name: whole.line(known), "E = 1": single.line(alone)})
    return Outcome(numbers, {"distance": by_step({name: run}), "exact": exact})

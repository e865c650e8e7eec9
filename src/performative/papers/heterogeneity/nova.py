"""Unequal local work: where FedAvg and FedNova settle, with several local solvers."""

from typing import Any

import numpy as np

import performative as pf
from performative.aggregators import Mean, Nova, Scaffold
from performative.estimators import ControlVariate, Minibatch, Preconditioned, Prox
from performative.optimizers import Momentum
from performative.papers.heterogeneity.quadratic import QUIET, Parabolas
from performative.papers.outcome import Outcome, bars, lay_out

SOLVERS = {"vanilla": (0.0, 0.0), "momentum": (1.0, 0.0), "proximal": (0.0, 1.0)}


def unequal_work(
    curvature: list[float], level: list[float], reaction: list[float], weights: list[float], steps: list[int],
    rates: list[float], decay: float, pull: float, start: float, rounds: int,
    other_reaction: list[float], other_level: list[float], other_steps: list[int],
) -> Outcome:  # fmt: skip
    """Vanilla, momentum, proximal and variance-reduced clients under FedAvg and FedNova, at a rate and at half of it.

    Plain steps are momentum 0 and pull 0, so that three solvers are one program. The `other` clients are those on which
    plain averaging may run away.
    """
    p = np.asarray(weights, np.float64)
    h, s, r = (np.asarray(v, np.float64) for v in (curvature, level, reaction))
    ours = Parabolas(h, s, r, p)
    s, r = (np.asarray(v, np.float64) for v in (other_level, other_reaction))
    other = Parabolas(np.ones(len(p)), s, r, np.full(len(p), 1.0 / len(p)))
    work = pf.LocalWork(pf.Full(), steps)
    plain = Prox(Preconditioned(Minibatch(), Momentum(0.0)), 0.0)
    names: dict[tuple[str, str, float], dict[str, Any]] = {}
    for rule, alone, inner in (("FedAvg", Mean(), Scaffold()), ("FedNova", Nova(), Nova(Scaffold()))):
        for rate in rates:
            for solver, (m, mu) in SOLVERS.items():
                numbers = {"estimator.inner.tx.decay": decay * m, "estimator.mu": pull * mu, "rate": rate}
                names[rule, solver, rate] = {"aggregator": alone, **numbers}
            for solver, m in (("VR", 0.0), ("momentum + VR", 1.0)):
                estimator = Prox(Preconditioned(ControlVariate(Minibatch()), Momentum(decay * m)), 0.0)
                names[rule, solver, rate] = {"aggregator": inner, "estimator": estimator, "rate": rate}
        other_work = pf.LocalWork(pf.Full(), other_steps)
        names[rule, "other", rates[0]] = {
            "aggregator": alone, "participation": other_work, "problem": other.problem()
        }  # fmt: skip
    algorithm = pf.p_fedavg(rates[0], participation=work, estimator=plain)
    record = pf.Record(theta="last", consensus=False, risks=False, limit=1e30)
    swept = pf.sweep(ours.problem(), algorithm, list(names.values()), rounds, start, record=record, **QUIET)
    ends = {name: float(np.asarray(h.final)[0]) for name, h in zip(names, swept.histories, strict=True)}
    ways = {
        name: np.asarray(h["distance_to_stable"], np.float64) for name, h in zip(names, swept.histories, strict=True)
    }
    mismatched = ours.balance(pf.theory.objective_weights(p, steps))
    gap = abs(mismatched - ours.stable)

    def limit(rule: str, solver: str) -> float:
        """What a rate and half of it say of a rate of 0."""
        first, half = (ends[rule, solver, rate] for rate in rates)
        return 2 * half - first

    numbers_out: dict[str, float] = {
        "true_point": ours.stable,
        "mismatched_point": mismatched,
        "gap_of_objectives": gap,
        "fedavg_limit": limit("FedAvg", "vanilla"),
        "fedavg_off_mismatched": abs(limit("FedAvg", "vanilla") - mismatched) / gap,
        "closed_form_fedavg": abs(ends["FedAvg", "vanilla", rates[0]]
                                  / pf.theory.settled_point(ours.mean, ours.slope, p, rates[0], steps) - 1),
        "closed_form_fednova": abs(ends["FedNova", "vanilla", rates[0]]
                                   / pf.theory.settled_point(ours.mean, ours.slope, p, rates[0], steps, True) - 1),
        "fednova_bias_halves": abs(ends["FedNova", "vanilla", rates[1]] - ours.stable)
        / abs(ends["FedNova", "vanilla", rates[0]] - ours.stable),
        "fedavg_bias_halves": abs(ends["FedAvg", "vanilla", rates[1]] - ours.stable)
        / abs(ends["FedAvg", "vanilla", rates[0]] - ours.stable),
    }  # fmt: skip
    for solver in (*SOLVERS, "VR", "momentum + VR"):
        word = solver.replace(" + ", "_")
        numbers_out[f"fedavg_off_{word}"] = abs(limit("FedAvg", solver) - ours.stable) / gap
        numbers_out[f"fednova_off_{word}"] = abs(limit("FedNova", solver) - ours.stable) / gap
    runaway, repaired = (ways[rule, "other", rates[0]][0] for rule in ("FedAvg", "FedNova"))
    finite = runaway[np.isfinite(runaway)]
    R = pf.theory.joshi2023.points.client_work(other.slope, rates[0], np.asarray(other_steps))
    nova_point = pf.theory.settled_point(other.mean, other.slope, other.weights, rates[0], other_steps, True)
    numbers_out |= {
        "other_mean_reaction": float(other.weights @ other.reaction),
        "other_fedavg_growth": float(finite[-1] / finite[-2]),
        "other_fedavg_growth_exact": float(1.0 - other.weights @ (R * other.slope)),
        "other_fedavg_distance": float(finite[-1]),
        "other_fednova_distance": float(repaired[-1]),
        "other_fednova_distance_exact": abs(nova_point - other.stable),
        "other_start_distance": abs(start - other.stable),
    }
    show = [(rule, s) for s in (*SOLVERS, "VR", "momentum + VR") for rule in ("FedAvg", "FedNova")]
    x = np.arange(rounds + 1)
    early = slice(0, min(rounds, 300) + 1)
    lines = {f"{rule}, {s}": (x[early], ways[rule, s, rates[1]][0][early])
             for rule in ("FedAvg", "FedNova") for s in ("vanilla", "momentum")}  # fmt: skip
    gone = {
        rule: (x[early], np.minimum(ways[rule, "other", rates[0]][0][early], 1e20)) for rule in ("FedAvg", "FedNova")
    }
    return Outcome(
        numbers_out,
        {
            "off": bars({f"{rule}, {s}": [abs(limit(rule, s) - ours.stable)] for rule, s in show}),
            "way": lay_out(lines),
            "other": lay_out(gone),
        },
    )

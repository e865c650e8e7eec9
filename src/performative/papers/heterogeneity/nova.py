"""Unequal local work: where FedAvg and FedNova settle, with several local solvers."""

from typing import Any

import numpy as np

import performative as pf
from performative.aggregators import Mean, Nova, Scaffold
from performative.estimators import ControlVariate, Minibatch, Preconditioned, Prox
from performative.optimizers import Momentum
from performative.papers.heterogeneity.quadratic import Parabolas
from performative.papers.outcome import Outcome, bars, over
from performative.papers.runs import distance, sweep
from performative.theory import settled_point
from performative.theory.joshi2023.points import client_work

SOLVERS = {"vanilla": (0.0, 0.0), "momentum": (1.0, 0.0), "proximal": (0.0, 1.0)}
REDUCED = {"VR": 0.0, "momentum + VR": 1.0}
RULES = {"FedAvg": (Mean(), Scaffold()), "FedNova": (Nova(), Nova(Scaffold()))}


def unequal_work(
    curvature: list[float], level: list[float], reaction: list[float], weights: list[float], steps: list[int],
    rates: list[float], decay: float, pull: float, start: float, rounds: int,
    other_reaction: list[float], other_level: list[float], other_steps: list[int],
) -> Outcome:  # fmt: skip
    """Vanilla, momentum, proximal and variance-reduced clients under FedAvg and FedNova, at a rate and at half of it.

    Plain steps are momentum 0 and pull 0, so that three solvers are one program. The `other` clients are those on which
    plain averaging may run away.
    """
    ours = Parabolas.of(curvature, level, reaction, weights)
    other = Parabolas.of(np.ones(len(weights)), other_level, other_reaction)
    p = ours.weights
    plain = Prox(Preconditioned(Minibatch(), Momentum(0.0)), 0.0)
    names: dict[tuple[str, str, float], dict[str, Any]] = {}
    for rule, (alone, inner) in RULES.items():
        for rate in rates:
            for solver, (m, mu) in SOLVERS.items():
                own: dict[str, Any] = {"estimator.inner.tx.decay": decay * m, "estimator.mu": pull * mu, "rate": rate}
                names[rule, solver, rate] = {"aggregator": alone, **own}
            for solver, m in REDUCED.items():
                estimator = Prox(Preconditioned(ControlVariate(Minibatch()), Momentum(decay * m)), 0.0)
                names[rule, solver, rate] = {"aggregator": inner, "estimator": estimator, "rate": rate}
        own = {"participation": pf.LocalWork(pf.Full(), other_steps), "problem": other.problem()}
        names[rule, "other", rates[0]] = {"aggregator": alone, **own}
    algorithm = pf.p_fedavg(rates[0], participation=pf.LocalWork(pf.Full(), steps), estimator=plain)
    runs = sweep(ours.problem(), algorithm, names, rounds, start, limit=1e30)
    ends = {name: float(np.asarray(run.final)[0]) for name, run in runs.items()}
    ways = {name: distance(run)[0] for name, run in runs.items()}
    mismatched = ours.balance(pf.theory.objective_weights(p, steps))
    gap = abs(mismatched - ours.stable)

    def limit(rule: str, solver: str) -> float:
        """What a rate and half of it say of a rate of 0."""
        first, half = (ends[rule, solver, rate] for rate in rates)
        return 2 * half - first

    numbers: dict[str, float] = {
        "true_point": ours.stable,
        "mismatched_point": mismatched,
        "gap_of_objectives": gap,
        "fedavg_limit": limit("FedAvg", "vanilla"),
        "fedavg_off_mismatched": abs(limit("FedAvg", "vanilla") - mismatched) / gap,
    }
    for rule in RULES:
        first, half = (ends[rule, "vanilla", rate] for rate in rates)
        point = settled_point(ours.mean, ours.slope, p, rates[0], steps, rule == "FedNova")
        numbers[f"closed_form_{rule.lower()}"] = abs(first / point - 1)
        numbers[f"{rule.lower()}_bias_halves"] = abs(half - ours.stable) / abs(first - ours.stable)
        for solver in (*SOLVERS, *REDUCED):
            off = abs(limit(rule, solver) - ours.stable)
            numbers[f"{rule.lower()}_off_{solver.replace(' + ', '_')}"] = off / gap
    runaway, repaired = (ways[rule, "other", rates[0]] for rule in RULES)
    finite = runaway[np.isfinite(runaway)]
    R = client_work(other.slope, rates[0], np.asarray(other_steps))
    nova_point = settled_point(other.mean, other.slope, other.weights, rates[0], other_steps, True)
    numbers |= {
        "other_mean_reaction": float(other.weights @ other.reaction),
        "other_fedavg_growth": float(finite[-1] / finite[-2]),
        "other_fedavg_growth_exact": float(1.0 - other.weights @ (R * other.slope)),
        "other_fedavg_distance": float(finite[-1]),
        "other_fednova_distance": float(repaired[-1]),
        "other_fednova_distance_exact": abs(nova_point - other.stable),
        "other_start_distance": abs(start - other.stable),
    }
    early = min(rounds, 300) + 1
    off_by = {f"{rule}, {s}": [abs(limit(rule, s) - ours.stable)] for s in (*SOLVERS, *REDUCED) for rule in RULES}
    way = {f"{rule}, {s}": ways[rule, s, rates[1]][:early] for rule in RULES for s in ("vanilla", "momentum")}
    gone = {rule: np.minimum(ways[rule, "other", rates[0]][:early], 1e20) for rule in RULES}
    x = np.arange(early)
    return Outcome(numbers, {"off": bars(off_by), "way": over(x, way), "other": over(x, gone)})

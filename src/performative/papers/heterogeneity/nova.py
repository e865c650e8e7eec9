"""Unequal local work: where FedAvg and FedNova settle, with several local solvers."""

from typing import Any

import numpy as np

import performative as pf
from performative.aggregators import Mean, Nova, Scaffold
from performative.estimators import ControlVariate, Minibatch, Preconditioned, Prox
from performative.optimizers import Adagrad, Momentum
from performative.papers.heterogeneity.quadratic import Parabolas, continued
from performative.papers.heterogeneity.work import DrawnEpochs
from performative.papers.outcome import Outcome, bars, mean, over
from performative.papers.runs import distance, models, sweep
from performative.theory import settled_point
from performative.theory.joshi2023.points import client_work

SOLVERS = {"vanilla": (0.0, 0.0), "momentum": (1.0, 0.0), "proximal": (0.0, 1.0)}
REDUCED = {"VR": 0.0, "momentum + VR": 1.0}
RULES = {"FedAvg": (Mean(), Scaffold()), "FedNova": (Nova(), Nova(Scaffold()))}


def unequal_work(
    curvature: list[float], level: list[float], reaction: list[float], weights: list[float], steps: list[int],
    rates: list[float], decay: float, pull: float, start: float, rounds: int,
    other_reaction: list[float], other_level: list[float], other_steps: list[int],
    epochs: tuple[int, int] = (0, 0), repeats: int = 1,
) -> Outcome:  # fmt: skip
    """Vanilla, momentum, proximal and variance-reduced clients under FedAvg and FedNova, extrapolated to rate 0.

    Plain steps are momentum 0 and pull 0, so three solvers share one program. The `other` clients are those on which
    plain averaging may diverge. With `epochs`, the work is also redrawn each round, and Adagrad is tried.
    """
    ours = Parabolas.of(curvature, level, reaction, weights)
    other = Parabolas.of(np.ones(len(weights)), other_level, other_reaction)
    p, drawn = ours.weights, bool(epochs[1])
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
            if drawn and rule == "FedNova":
                adaptive = Prox(Preconditioned(Minibatch(), Adagrad(1e-6)), 0.0)
                names[rule, "Adagrad", rate] = {"aggregator": alone, "estimator": adaptive, "rate": rate}
        own = {"participation": pf.LocalWork(pf.Full(), other_steps), "problem": other.problem()}
        names[rule, "other", rates[0]] = {"aggregator": alone, **own}
    algorithm = pf.p_fedavg(rates[0], participation=pf.LocalWork(pf.Full(), steps), estimator=plain)
    runs = sweep(ours.problem(), algorithm, names, rounds, start, limit=1e30)
    ends = {name: float(np.asarray(run.final)[0]) for name, run in runs.items()}
    ways = {name: distance(run)[0] for name, run in runs.items()}
    mismatched = ours.balance(pf.theory.objective_weights(p, steps))
    gap = abs(mismatched - ours.stable)

    def off(rule: str, solver: str, point: float = ours.stable) -> tuple[float, float]:
        """How far from a point it settles as the rate goes to 0, over the distance between the two minimizers."""
        value, error = continued(rates, [ends[rule, solver, rate] for rate in rates])
        return abs(value - point) / gap, error / gap if len(rates) > 2 else 0.0  # two rates give no error estimate

    numbers: dict[str, Any] = {"fedavg_off_mismatched": off("FedAvg", "vanilla", mismatched)}
    solved = {(rule, solver) for rule, solver, _ in names if solver != "other"}
    numbers |= {f"{rule.lower()}_off_{solver.replace(' + ', '_')}": off(rule, solver) for rule, solver in solved}
    for rule in RULES:
        point = settled_point(ours.mean, ours.slope, p, rates[0], steps, rule == "FedNova")
        numbers[f"closed_form_{rule.lower()}"] = abs(ends[rule, "vanilla", rates[0]] / point - 1)
    if drawn:
        work = pf.LocalWork(pf.Full(), DrawnEpochs(np.asarray(steps, np.int32), *epochs))
        settings = {(rule, rate): {"aggregator": RULES[rule][0], "rate": rate, "participation": work}
                    for rule in RULES for rate in rates}  # fmt: skip
        found = sweep(ours.problem(), algorithm, settings, rounds, start, 0, repeats, theta="all")
        middle = {name: models(run)[:, rounds // 2 :].mean(axis=1) for name, run in found.items()}
        for rule, point, name in (("FedAvg", mismatched, "fedavg_drawn"), ("FedNova", ours.stable, "fednova_drawn")):
            each = np.asarray([continued(rates, row) for row in np.stack([middle[rule, r] for r in rates], axis=1)])
            value, error = mean((each[:, 0] - point) / gap)
            numbers[name] = value, float(np.hypot(error, each[:, 1].mean() / gap))
    runaway, repaired = (ways[rule, "other", rates[0]] for rule in RULES)
    finite = runaway[np.isfinite(runaway)]
    R = client_work(other.slope, rates[0], np.asarray(other_steps))
    nova_point = settled_point(other.mean, other.slope, other.weights, rates[0], other_steps, True)
    numbers |= {
        "other_fedavg_growth": float(finite[-1] / finite[-2]),
        "other_fedavg_growth_exact": float(1.0 - other.weights @ (R * other.slope)),
        "other_fednova_distance": float(repaired[-1]),
        "other_fednova_distance_exact": abs(nova_point - other.stable),
    }
    early = min(rounds, 300) + 1
    off_by = {f"{rule}, {s}": [gap * off(rule, s)[0]] for s in (*SOLVERS, *REDUCED) for rule in RULES}
    way = {f"{rule}, {s}": ways[rule, s, rates[1]][:early] for rule in RULES for s in ("vanilla", "momentum")}
    gone = {rule: np.minimum(ways[rule, "other", rates[0]][:early], 1e20) for rule in RULES}
    x = np.arange(early)
    return Outcome(numbers, {"off": bars(off_by), "way": over(x, way), "other": over(x, gone)})

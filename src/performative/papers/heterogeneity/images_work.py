"""Unequal local work on images: the table of the FedNova slide."""

from typing import Any

import numpy as np

import performative as pf
from performative.aggregators import Mean, Nova, Scaffold
from performative.estimators import ControlVariate, Minibatch, Preconditioned, Prox
from performative.optimizers import Momentum
from performative.papers.heterogeneity.images import best, late, load, make
from performative.papers.heterogeneity.work import DrawnEpochs
from performative.papers.outcome import Outcome, bars, mean, over
from performative.papers.runs import sweep, word


def unequal(
    data: str, network: str, clients: int, rows: int, alpha: float, epochs: int, drawn: list[int], batch: int,
    rates: list[float], decay: float, pull: float, rounds: int, every: int, repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """FedAvg and FedNova with plain, momentum, proximal and variance-reduced clients.

        n_i by Dirichlet(alpha) over clients for each class,      tau_i = E_i ceil(n_i / batch),      p_i = n_i / n

    E_i = epochs, or drawn from U(lo, hi) each round. Each method at its best rate.
    """
    x, y, test = load(data)
    theta, model = make(network, x.shape[1:], seed)
    x, y, count = pf.partition.tables(x, y, pf.partition.dirichlet(y[:rows], clients, alpha, seed, least=batch))
    problem = pf.Problem(pf.losses.cross_entropy(model), pf.populations.Static(x, y, count), count / count.sum())
    each = np.ceil(count / batch).astype(np.int32)
    works = {"": pf.LocalWork(pf.Full(), epochs * each), "drawn ": pf.LocalWork(pf.Full(), DrawnEpochs(each, *drawn))}
    solvers: dict[str, tuple[float, Any]] = {
        solver: (m, Prox(Preconditioned(Minibatch(), Momentum(m)), mu))
        for solver, (m, mu) in {"vanilla": (0.0, 0.0), "momentum": (decay, 0.0), "proximal": (0.0, pull)}.items()
    }
    reduced = {solver: (m, Preconditioned(ControlVariate(Minibatch()), Momentum(m)))
               for solver, m in {"VR": 0.0, "momentum VR": decay}.items()}  # fmt: skip
    settings: dict[Any, dict[str, Any]] = {}
    for rule, alone, inner in (("FedAvg", Mean(), Scaffold()), ("FedNova", Nova(), Nova(Scaffold()))):
        for work, who in works.items():
            for solver, (m, estimator) in (solvers | (reduced if work else {})).items():
                parts = {"aggregator": inner if solver in reduced else alone, "estimator": estimator}
                for rate in rates:
                    own = {"rate": rate * (1 - m), "participation": who}
                    settings[(rule, f"{work}{solver}"), rate] = parts | own
    algorithm = pf.fedavg(rates[0], batch=pf.Fixed(batch), participation=works[""], estimator=solvers["vanilla"][1])
    how: dict[str, Any] = {"theta": "all", "every": every, "dtype": "float32"}
    right = best(model, sweep(problem, algorithm, settings, rounds, theta, seed, repeats, **how), test)
    end = {name: late(values) for name, values in right.items()}
    numbers: dict[str, Any] = {"least_steps": float(epochs * each.min()), "most_steps": float(epochs * each.max())}
    ran = [solver for rule, solver in end if rule == "FedAvg"]
    numbers |= {f"gain_{word(s)}": mean(end["FedNova", s] - end["FedAvg", s]) for s in ran}
    top = end["FedNova", "drawn momentum VR"]
    numbers["least_lead"] = min(mean(top - end[name]) for name in end if name != ("FedNova", "drawn momentum VR"))
    shown = {f"{rule}, {s}": right[rule, s] for rule, s in right if s in ("vanilla", "drawn momentum")}
    table = {f"{rule}, {s}": end[rule, s] for rule, s in sorted(end, key=lambda name: name[1])}
    return Outcome(numbers, {"accuracy": over(np.arange(0, rounds + 1, every), shown), "table": bars(table)})

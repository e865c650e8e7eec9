"""Local steps on heterogeneous clients: how far from the optimum training settles, and what corrects it."""

from dataclasses import replace
from typing import Any

import numpy as np

import performative as pf
from performative.estimators import ControlVariate, Minibatch, Prox
from performative.papers.heterogeneity.quadratic import Parabolas, continued, order, parabolas, rounds_to
from performative.papers.outcome import Outcome, over
from performative.papers.runs import models, sweep
from performative.theory.joshi2023.points import client_work


def client_drift(
    clients: int, curvature: list[float], spread: float, reaction: list[float], taus: list[int], rates: list[float],
    tau: int, rate: float, long_rate: float, pull: float, start: float, rounds: int, seed: int,
) -> Outcome:  # fmt: skip
    """|grad F|^2 where FedAvg settles, over local steps and rates; then FedProx, AdaComm and SCAFFOLD.

    One extra client, of weight 0, takes the largest number of steps, so every tau shares one compiled program.
    """
    ours = parabolas(clients, curvature, spread, reaction, seed)
    alike = replace(ours, curvature=np.full(clients, ours.curvature.mean()), reaction=np.full(clients, reaction[0]))
    longest = max(taus)
    pairs = [(t, rate) for t in taus] + [(tau, r) for r in rates] + [(longest, long_rate)]

    def work(t: int) -> pf.LocalWork:
        return pf.LocalWork(pf.Full(), np.append(np.full(clients, t), longest))

    settings: dict[Any, dict[str, Any]] = {(t, r): {"participation": work(t), "rate": r} for t, r in pairs}
    controlled = {"estimator": Prox(ControlVariate(Minibatch()), 0.0), "aggregator": pf.aggregators.Scaffold()}
    settings |= {
        "FedProx": {"participation": work(tau), "estimator.mu": pull},
        "alike": {"participation": work(tau), "problem": _paced(alike)},
        "alike, one step": {"participation": work(1), "problem": _paced(alike)},
        "AdaComm": {"participation": pf.LocalWork(pf.Full(), pf.participation.AdaComm(tau))},
        "SCAFFOLD": {"participation": work(tau), **controlled},
    }
    plain = pf.p_fedavg(rate, estimator=Prox(Minibatch(), 0.0))
    runs = sweep(_paced(ours), plain, settings, rounds, start, theta="all")
    paths = {name: models(run)[0] for name, run in runs.items()}
    squares = {name: ours.gradient(path) ** 2 for name, path in paths.items()}
    floors = {pair: float(squares[pair][-1]) for pair in pairs}
    same = {t: alike.gradient(paths[name]) ** 2 for t, name in ((tau, "alike"), (1, "alike, one step"))}
    exact = {pair: _floor(ours, *pair) for pair in pairs}
    by_tau = np.asarray([floors[t, rate] for t in taus])
    by_rate = np.asarray([floors[tau, r] for r in rates])
    L = float(np.abs(ours.slope).max())
    printed = [(r * L) ** 2 * t * (t - 1) * ours.dissimilarity for t, r in pairs if t > 1]
    measured = [floors[t, r] for t, r in pairs if t > 1]
    given = _assumptions(ours, paths[tau, rates[0]], start)
    bound = pf.theory.fedavg(given, rates[0], tau, rounds)
    goal = 1e-2 * float(squares[taus[0], rate][0])
    # Wang et al. 2022: the mean of the clients' updates at the optimum, over eta tau.
    pulls = ours.mean - ours.slope * ours.stable
    at_optimum = [abs(ours.weights @ (client_work(ours.slope, r, tau) * pulls)) / (r * tau) for r in rates]
    numbers = {
        "floor_one_step": floors[1, rate],
        "floor": floors[tau, rate],
        "exponent_of_rate": order(rates, by_rate),
        "least_growth_with_steps": float(np.min(by_tau[2:] / by_tau[1:-1])),
        "largest_share_of_printed_term": float(np.max(np.divide(measured, printed))),
        "largest_error_of_closed_form": max(abs(floors[p] / exact[p] - 1) for p in pairs if p[0] > 1),
        "settles_at_many_steps": float(paths[longest, long_rate][-1]),
        "mean_of_local_minima": float(ours.weights @ ours.minima),
        "share_of_bound": float(np.mean(squares[tau, rates[0]][:-1])) / bound.total,
        "proximal": float(squares["FedProx"][-1]),
        "adapted": float(squares["AdaComm"][-1]),
        "scaffold": float(squares["SCAFFOLD"][-1]),
        "share_that_drifts_alike": float(same[tau][-1]) / alike.dissimilarity,
        "error_over_drift_at_optimum": continued(rates, np.sqrt(by_rate) / at_optimum),
        "rounds_with_one_step": rounds_to(squares[1, rate], goal),
        "rounds_with_many_steps": rounds_to(squares[tau, rate], goal),
        "rounds_alike_one_step": rounds_to(same[1], 1e-2 * same[1][0]),
        "rounds_alike_many_steps": rounds_to(same[tau], 1e-2 * same[tau][0]),
    }
    x = np.arange(min(rounds, 200) + 1)
    shown: dict[str, np.ndarray] = {f"FedAvg, $\\tau = {t}$": squares[t, rate] for t in (1, tau)}
    shown |= {name: squares[name] for name in ("FedProx", "AdaComm", "SCAFFOLD")}
    data = {
        "way": over(x, {name: square[: len(x)] for name, square in shown.items()}),
        "by_rate": over(rates, {"measured": by_rate, "exact": [exact[tau, r] for r in rates]}),
        "by_steps": over(taus[1:], {"measured": by_tau[1:], "exact": [exact[t, rate] for t in taus[1:]]}),
    }
    return Outcome(numbers, data)


def _paced(clients: Parabolas) -> pf.Problem:
    """The problem with one extra client of weight 0."""
    more = {name: np.append(getattr(clients, name), getattr(clients, name)[0]) for name in ("curvature", "level")}
    return replace(
        clients, **more, reaction=np.append(clients.reaction, 0.0), weights=np.append(clients.weights, 0.0)
    ).problem()


def _floor(clients: Parabolas, tau: int, rate: float) -> float:
    return pf.theory.quadratic_floor(clients.mean, clients.slope, rate, tau).drift


def _assumptions(clients: Parabolas, path: np.ndarray, start: float) -> pf.theory.FederatedAssumptions:
    """Constants that hold at every model of a run."""
    pulls = np.outer(path, clients.slope) - clients.mean
    spread = np.mean((pulls - pulls.mean(axis=1, keepdims=True)) ** 2, axis=1).max()
    gap = float(clients.weights @ clients.slope) / 2 * (start - clients.stable) ** 2
    L = float(np.abs(clients.slope).max())
    return pf.theory.FederatedAssumptions(L, 0.0, float(np.sqrt(spread)), gap, len(clients.level))

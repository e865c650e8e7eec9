"""Local steps on clients that differ: how far from the optimum training settles, and what brings it back."""

from dataclasses import replace

import numpy as np

import performative as pf
from performative.estimators import ControlVariate, Minibatch, Prox
from performative.papers.heterogeneity.quadratic import QUIET, Parabolas, parabolas, rounds_to
from performative.papers.outcome import Outcome, lay_out


def client_drift(
    clients: int, curvature: list[float], spread: float, reaction: list[float], taus: list[int], rates: list[float],
    tau: int, rate: float, long_rate: float, pull: float, start: float, rounds: int, seed: int,
) -> Outcome:  # fmt: skip
    """|grad F|^2 where FedAvg settles, over local steps and rates; then FedProx, AdaComm and SCAFFOLD.

    One more client, of weight 0, takes the most steps: then every tau runs in the same program.
    """
    ours = parabolas(clients, curvature, spread, reaction, seed)
    alike = replace(ours, curvature=np.full(clients, ours.curvature.mean()), reaction=np.full(clients, reaction[0]))
    longest = max(taus)
    pairs = [(t, rate) for t in taus] + [(tau, r) for r in rates] + [(longest, long_rate)]

    def work(t: int) -> pf.LocalWork:
        return pf.LocalWork(pf.Full(), np.append(np.full(clients, t), longest))

    settings = [{"participation": work(t), "rate": r} for t, r in pairs]
    settings.append({"participation": work(tau), "estimator.mu": pull})
    settings.append({"participation": work(tau), "problem": _paced(alike)})
    settings.append({"participation": pf.LocalWork(pf.Full(), pf.participation.AdaComm(tau))})
    controlled = {"estimator": Prox(ControlVariate(Minibatch()), 0.0), "aggregator": pf.aggregators.Scaffold()}
    settings.append({"participation": work(tau), **controlled})
    algorithm = pf.p_fedavg(rate, estimator=Prox(Minibatch(), 0.0))
    swept = pf.sweep(
        _paced(ours),
        algorithm,
        settings,
        rounds,
        start,
        record=pf.Record(consensus=False, risks=False),
        **QUIET,
    )
    paths = [np.asarray(history.theta, np.float64)[0] for history in swept.histories]
    squares = [ours.gradient(path) ** 2 for path in paths]
    floors = {pair: float(square[-1]) for pair, square in zip(pairs, squares, strict=False)}
    prox, same, adapted, scaffold = squares[-4], alike.gradient(paths[-3]) ** 2, squares[-2], squares[-1]

    exact = {pair: _floor(ours, *pair) for pair in pairs}
    by_tau = np.asarray([floors[t, rate] for t in taus])
    by_rate = np.asarray([floors[tau, r] for r in rates])
    L = float(np.abs(ours.slope).max())
    printed = [(r * L) ** 2 * t * (t - 1) * ours.dissimilarity for t, r in pairs if t > 1]
    measured = [floors[t, r] for t, r in pairs if t > 1]
    given = _assumptions(ours, paths[len(taus)], start)
    bound = pf.theory.fedavg(given, rates[0], tau, rounds)
    goal = 1e-2 * float(squares[0][0])
    numbers = {
        "floor_one_step": floors[1, rate],
        "floor": floors[tau, rate],
        "exponent_of_rate": float(np.polyfit(np.log(rates), np.log(by_rate), 1)[0]),
        "least_growth_with_steps": float(np.min(by_tau[2:] / by_tau[1:-1])),
        "largest_share_of_printed_term": float(np.max(np.divide(measured, printed))),
        "largest_error_of_closed_form": max(abs(floors[p] / exact[p] - 1) for p in pairs if p[0] > 1),
        "settles_at_many_steps": float(paths[len(pairs) - 1][-1]),
        "mean_of_local_minima": float(ours.weights @ ours.minima),
        "optimum": ours.stable,
        "share_of_bound": float(np.mean(squares[len(taus)][:-1])) / bound.total,
        "proximal": float(prox[-1]),
        "adapted": float(adapted[-1]),
        "scaffold": float(scaffold[-1]),
        "dissimilarity_of_clients_alike": alike.dissimilarity,
        "share_that_drifts_alike": float(same[-1]) / alike.dissimilarity,
        "rounds_with_one_step": rounds_to(squares[taus.index(1)], goal),
        "rounds_with_many_steps": rounds_to(squares[taus.index(tau)], goal),
    }
    x = np.arange(min(rounds, 200) + 1)
    shown = {f"FedAvg, tau = {t}": squares[taus.index(t)] for t in (1, tau)}
    shown |= {"FedProx": prox, "AdaComm": adapted, "SCAFFOLD": scaffold}
    return Outcome(
        numbers,
        {
            "way": lay_out({name: (x, square[: len(x)]) for name, square in shown.items()}),
            "by_rate": lay_out({"measured": (rates, by_rate), "exact": (rates, [exact[tau, r] for r in rates])}),
            "by_steps": lay_out(
                {"measured": (taus[1:], by_tau[1:]), "exact": (taus[1:], [exact[t, rate] for t in taus[1:]])}
            ),
        },
    )


def _paced(clients: Parabolas) -> pf.Problem:
    """The problem with one more client that weighs nothing."""
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
    return pf.theory.FederatedAssumptions(
        float(np.abs(clients.slope).max()), 0.0, float(np.sqrt(spread)), gap, len(clients.level)
    )

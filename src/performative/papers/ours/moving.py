"""Data that drift on their own while they react: how far behind does training lag?"""

from typing import Any

import numpy as np

import performative as pf
from performative.papers.outcome import Outcome, lay_out, mean, over
from performative.papers.runs import distance, late, models, sweep


def following(
    clients: int, spread: float, reaction: list[float], velocity: float, noise: float, rates: list[float], rounds: int,
    repeats: int, retrainings: int, seed: int,
) -> Outcome:  # fmt: skip
    """Constant steps tracking a stable point that moves in a straight line, and full retraining."""
    rng = np.random.default_rng(seed)
    level, eps = spread * rng.standard_normal(clients), rng.uniform(reaction[0], reaction[1], clients)
    path = pf.paths.Linear(velocity)

    def moving(scale: float) -> pf.Problem:
        people = pf.populations.Gaussian(level, eps, scale)
        return pf.Problem(pf.losses.squared, pf.populations.Drifting(people, path))

    problem, c = moving(noise), float(1 - eps.mean())
    start = float(level.mean() / c)
    settings = {rate: {"rate": float(rate)} for rate in rates}
    runs = sweep(problem, pf.p_fedavg(rates[0]), settings, rounds, start, seed, repeats, theta="all")
    squares = {rate: mean(late(distance(run) ** 2, 0.5).mean(axis=1)) for rate, run in runs.items()}
    exact = {rate: pf.theory.drift_error(velocity, eps, noise, rate).total for rate in rates}
    ratios = [(squares[rate][0] / exact[rate], squares[rate][1] / exact[rate]) for rate in rates]
    best = pf.theory.best_step(velocity, eps, noise)
    nearest = min(rates, key=lambda rate: abs(np.log(rate / best)))
    still = moving(0.0)
    trained = np.asarray(pf.repeated_risk_minimization(still, start, retrainings)).reshape(-1)
    point: Any = pf.stable_point(still, time=float(len(trained) - 1))
    lag = abs(trained[-1] - float(point))
    numbers: dict[str, Any] = {
        "worst_ratio_to_closed_form": max(ratios, key=lambda ratio: abs(ratio[0] - 1) / ratio[1]),
        "best_step": best,
        "error_of_best": squares[nearest],
        "error_of_shortest": squares[min(rates)],
        "error_of_longest": squares[max(rates)],
        "retraining_lag_over_closed_form": lag / (velocity / c**2),
    }
    few = np.arange(min(rounds, 400) + 1)
    line = start + velocity / c * few
    steps = {f"step {rate:g}": models(runs[rate])[0][: len(few)] for rate in (min(rates), nearest, max(rates))}
    by_rate = {
        "runs": [squares[rate][0] for rate in rates], "closed form": list(exact.values()),
        "lag alone": [pf.theory.drift_error(velocity, eps, noise, rate).lag for rate in rates],
    }  # fmt: skip
    drawn = lay_out({name: (np.asarray(rates), values) for name, values in by_rate.items()})
    return Outcome(numbers, {"by_rate": drawn, "way": over(few, steps | {"stable point": line})})

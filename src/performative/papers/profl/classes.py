"""Binary strategic classification: Table 2, Figures 6a and 7."""

from typing import Any

import numpy as np

import performative as pf
from performative.papers.outcome import Outcome, mean, over
from performative.papers.profl.runs import Runs, ratio, spread, stays_below
from performative.papers.runs import given, late, models


@given(Runs)
def synthetic(s: Runs, kind: str) -> Outcome:
    """PFL and PROFL on Gaussian classes; accuracy on the data each model induces, in closed form."""
    problem = pf.cases.strategic_classes(kind, s.clients)
    runs = s.sweep(problem, s.both)
    right = {name: 100.0 * _normal_accuracy(problem.population, models(history)) for name, history in runs.items()}
    return Outcome(_compared(right), {"accuracy": over(runs["PFL"].rounds, right)})


def _compared(right: dict[str, np.ndarray]) -> dict[str, Any]:
    """Accuracy over the last twentieth, its spread over runs, and the paired difference over seeds."""
    ends = {name: late(values, 0.05).mean(axis=1) for name, values in right.items()}
    numbers: dict[str, Any] = {name.lower(): mean(rows) for name, rows in ends.items()}
    numbers |= {f"{name.lower()}_spread": spread(rows) for name, rows in ends.items()}
    return numbers | {"profl_minus_pfl": mean(ends["PROFL"] - ends["PFL"])}


def _normal_accuracy(population: Any, theta: np.ndarray) -> np.ndarray:
    """P(the sign is right), classes equally likely, [repeats, records]."""
    from scipy.stats import norm

    w, b, size = theta[..., :-1], theta[..., -1], np.linalg.norm(theta[..., :-1], axis=-1)
    means, strength = np.asarray(population.mean, float), np.asarray(population.sensitivity, float)  # [2, d], [N, 2]
    found = np.zeros_like(b)
    for label, sign in ((0, -1.0), (1, 1.0)):
        level = w @ means.reshape(-1, 2, w.shape[-1])[0, label] + b
        for gamma in strength[:, label]:
            score = (level - gamma * size**2) / (float(population.scale) * np.maximum(size, 1e-12))
            found += norm.cdf(sign * score) / (2.0 * len(strength))
    return found


@given(Runs)
def table(s: Runs, data: str, moves: bool, columns: list[int]) -> Outcome:
    """PFL and PROFL on a real table; accuracy on held-out people, who react too.

    `columns` selects columns of the table (empty: all); `moves=False` turns the reaction off.
    """
    load = {"credit": pf.cases.strategic_credit, "adult": pf.cases.strategic_adult}[data]
    how: dict[str, Any] = {} if moves else {"strength": np.zeros((s.clients, 2))}
    train, unseen = (_cut(problem, columns) for problem in load("profl", clients=s.clients, seed=s.seed, **how))
    runs = s.sweep(train, s.both)
    kept = np.unique(np.concatenate([np.arange(min(20, s.rounds)), np.linspace(0, s.rounds, 60).round()]).astype(int))
    judged = {name: _judged(unseen.population, models(history)[:, kept]) for name, history in runs.items()}
    right, losses = ({name: each[i] for name, each in judged.items()} for i in (0, 1))
    yes = _people(unseen.population)[1].mean()
    # One level for both: where 1/e of PFL's decrease remains.
    end = late(losses["PFL"]).mean()
    level = end + (losses["PFL"][:, 0].mean() - end) / np.e
    reached = {name: stays_below(kept, values, level) for name, values in losses.items()}
    numbers = _compared(right) | {
        "majority": 100.0 * float(max(yes, 1.0 - yes)),
        "loss_profl_minus_pfl": mean(late(losses["PROFL"]).mean(axis=1) - late(losses["PFL"]).mean(axis=1)),
        "rounds_pfl_over_profl": ratio(reached["PFL"], reached["PROFL"]),
    }
    return Outcome(numbers, {"accuracy": over(kept, right), "loss": over(kept, losses)})


def _cut(problem: pf.Problem, columns: list[int]) -> pf.Problem:
    """The same people with a subset of columns. For tables without an intercept."""
    if not columns:
        return problem
    old: Any = problem.population
    x = np.asarray(old.x)[..., columns]
    return pf.Problem(problem.loss, pf.populations.Strategic(x, old.y, old.strength, count=old.count), problem.weights)


def _people(population: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of all clients pooled: x, y and how strongly each person reacts."""
    x, y = np.asarray(population.x, np.float64), np.asarray(population.y)
    count = np.full(len(x), x.shape[1]) if population.count is None else np.asarray(population.count)
    real = np.arange(x.shape[1]) < count[:, None]
    kinds = np.where(real, y, 0)  # padding has no class
    return x[real], y[real], np.take_along_axis(np.asarray(population.strength, np.float64), kinds, axis=1)[real]


def _judged(population: Any, theta: np.ndarray) -> np.ndarray:
    """Accuracy in percent and mean logistic loss of many models on people who react, x - gamma_y theta, [2, ...].

    A score of 0 counts as positive, as in the paper; the penalty is excluded.
    """
    (x, y, strength), flat, found = _people(population), theta.reshape(-1, theta.shape[-1]), []
    columns = list(range(x.shape[1]) if population.features is None else population.features)
    for i in range(0, len(flat), 16):
        score = x @ flat[i : i + 16].T - strength[:, None] * np.sum(flat[i : i + 16, columns] ** 2, axis=1)
        right, loss = (score >= 0) == (y[:, None] == 1), np.logaddexp(0.0, score) - y[:, None] * score
        found.append([100.0 * right.mean(axis=0), loss.mean(axis=0)])
    return np.concatenate(found, axis=1).reshape(2, *theta.shape[:-1])

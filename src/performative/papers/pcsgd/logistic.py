"""Figures 2, 3 and 4: a lender learns from clipped gradients of strategic borrowers."""

import dataclasses
import itertools
import math
from typing import Any

import numpy as np

import performative as pf
from performative.papers.outcome import Outcome, lay_out, mean
from performative.papers.pcsgd.borrowers import Borrowers, read
from performative.papers.pcsgd.watching import RANDOM_WALK, Runs, memory_numbers, memory_of, thirds
from performative.papers.runs import given, models

# Repeats whose risk is measured: the slowest metric and the least variable.
_FEW = 4
RATES = [f"{where}_{label}" for where in ("test", "train") for label in ("positive", "negative")]


@given(Runs)
def credit(s: Runs, betas: list[float], judged: float, sample: int) -> Outcome:
    """PCSGD and DiceSGD from zero on one table, with people moving by 0.001, 0.01 and 0.1."""
    s = dataclasses.replace(s, rows=sample)
    algorithms = {"PCSGD": s.pcsgd(), "DiceSGD": s.dicesgd(s.clip)}
    tables = {beta: pf.cases.strategic_credit("pcsgd", strength=beta, rows=sample) for beta in betas}
    settings = {
        (name, beta): {"problem": tables[beta].problem, "algorithm": algorithm}
        for beta in betas
        for name, algorithm in algorithms.items()
    }
    start = np.zeros(read(tables[betas[0]].problem).x.shape[1])
    runs = s.sweep(settings, start=start)
    numbers: dict[str, Any] = {"random_walk": RANDOM_WALK, "least_beta": min(betas)}
    lines: dict[str, dict[str, Any]] = {name: {} for name in ("gap", "memory", "risk", *RATES)}
    late_rates: dict[str, dict[tuple[str, float], np.ndarray]] = {name: {} for name in (*RATES, "unrest")}
    for beta, (problem, held_out) in tables.items():
        people, others = read(problem), read(held_out)
        stable, limit = people.settle(), people.settle(s.clip)
        bias = (limit - stable) / np.linalg.norm(limit - stable)
        numbers |= _points(people, stable, limit)
        if beta == judged:
            numbers["drift"] = float((people.drift(start, float(s.eta.sum()), s.clip) - stable) @ bias)
            numbers["unbiased_gap"] = people.unbiased_square(start, stable, s.eta, math.sqrt(96) * s.noise * s.clip)
        for name in algorithms:
            history = runs[name, beta]
            theta, at = models(history), history.rounds[1:]
            square = np.sum((theta - stable) ** 2, axis=-1)
            values = {"gap": square, **_measure(people, others, theta)}
            for quantity, curve in values.items():
                lines[quantity][rf"{name}, $\beta = {beta:g}$"] = (at, curve[:, 1:])
            late = thirds(theta.shape[1])[1]
            for quantity in RATES:
                late_rates[quantity][name, beta] = values[quantity][:, late].mean(axis=1)
            late_rates["unrest"][name, beta] = _unrest(values["test_positive"][:, late])
            if beta == judged:
                key = name.lower()
                numbers |= {
                    f"{key}_gap": mean(square[:, -1]),
                    f"{key}_along_the_bias": mean((theta[:, -1] - stable) @ bias),
                    f"{key}_risk": mean(values["risk"][:, -1]),
                    f"{key}_early_risk": mean(values["risk"][:, theta.shape[1] // 10]),
                }
            if name == "DiceSGD":
                lines["memory"][rf"$\beta = {beta:g}$"] = memory_of(history)
                numbers |= memory_numbers(history, beta)
    for quantity, each in late_rates.items():
        steps = list(itertools.pairwise(betas)) if "positive" in quantity else [(betas[0], betas[-1])]
        drops = [mean(each[name, one] - each[name, more]) for name in algorithms for one, more in steps]
        # The least certain one; the fluctuation is claimed to rise.
        high = max(drops, key=lambda drop: drop[0] + 2 * drop[1])
        low = min(drops, key=lambda drop: drop[0] - 2 * drop[1])
        numbers[f"drop_of_{quantity}"] = high if quantity == "unrest" else low
    return Outcome(numbers, {name: lay_out(each) for name, each in lines.items()})


def _unrest(values: np.ndarray) -> np.ndarray:
    """Standard deviation of each row about its linear trend."""
    x = np.linspace(-1, 1, values.shape[1])
    return np.asarray([(row - np.polyval(np.polyfit(x, row, 1), x)).std() for row in values])


def _points(people: Borrowers, stable: np.ndarray, limit: np.ndarray) -> dict[str, Any]:
    """The exact numbers of the table."""
    mu, L = people.curvature(stable)
    share = float(people.y.mean())
    near = np.eye(len(stable))[0] * people.floor / 2
    moved = np.abs((people.reacted(near) - people.reacted(0 * near)).mean(axis=0)).sum()
    return {
        f"response_error_{people.beta:g}": people.response_error(stable) / people.beta,
        f"bias_{people.beta:g}": float(np.sum((stable - limit) ** 2)),
        f"bias_length_{people.beta:g}": float(np.linalg.norm(stable - limit)),
        "share_of_positives": (share, math.sqrt(share * (1 - share) / len(people.y))),
        f"most_beta_allowed_{people.beta:g}": mu / L,
        "sensitivity_over_beta": float(moved / np.linalg.norm(near) / people.beta),
    }


def _measure(people: Borrowers, others: Borrowers, theta: np.ndarray) -> dict[str, np.ndarray]:
    """Test and training rates, [repeats, records], and the risk of the first few repeats."""
    found = [rate for who in (others, people) for rate in np.stack([who.rates(one) for one in theta], 1)]
    return dict(zip(RATES, found, strict=True)) | {"risk": np.stack([people.risk(one) for one in theta[:_FEW]])}

"""Figures 2, 3 and 4: a lender learns from clipped gradients of people who evade it."""

import dataclasses
import itertools
import math
from typing import Any

import numpy as np

import performative as pf
from performative.papers.outcome import Outcome, lay_out, mean
from performative.papers.pcsgd.borrowers import Borrowers, read
from performative.papers.pcsgd.quadratic import slope
from performative.papers.pcsgd.watching import Runs, growth, memory_of, thirds
from performative.papers.runs import given, models

# Repeats whose risk is measured, which takes longest and varies least.
_FEW = 4


@given(Runs)
def credit(s: Runs, betas: list[float], judged: float, sample: int) -> Outcome:
    """PCSGD and DiceSGD from zero on one table, people going 0.001, 0.01 and 0.1 far."""
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
    numbers: dict[str, Any] = {"clip": s.clip}
    lines: dict[str, dict[str, Any]] = {
        name: {} for name in ("gap", "test_negative", "test_positive", "memory", "risk", "train_positive")
    }
    told: dict[str, dict[tuple[str, float], np.ndarray]] = {"tests": {}, "trains": {}, "unrests": {}}
    for beta, (problem, held_out) in tables.items():
        people, others = read(problem), read(held_out)
        stable, limit = people.settle(), people.settle(s.clip)
        bias = (limit - stable) / np.linalg.norm(limit - stable)
        numbers |= _points(people, stable, limit, s.clip)
        numbers[f"drift_{beta:g}"] = float((people.drift(start, float(s.eta.sum()), s.clip) - stable) @ bias)
        # The slowest way back to theta_PS: the squared gap falls as 1 / t or, if this is below 1, as t to minus this.
        numbers[f"exponent_{beta:g}"] = 2 * s.scale * float(np.linalg.eigvals(people.slopes(stable)).real.min())
        if beta == judged:
            sigma = math.sqrt(96) * s.noise * s.clip
            numbers["unbiased_gap"] = people.unbiased_square(start, stable, s.eta, sigma)
        for name in algorithms:
            history = runs[name, beta]
            theta, at = models(history), history.rounds[1:]
            square = np.sum((theta - stable) ** 2, axis=-1)
            values = _measure(people, others, theta)
            label, key = f"{name}, beta = {beta:g}", f"{name.lower()}_{beta:g}"
            lines["gap"][label] = (at, square[:, 1:])
            for quantity, curve in values.items():
                lines[quantity][label] = (at, curve[:, 1:])
            late = thirds(theta.shape[1])[1]
            told["tests"][name, beta] = values["test_positive"][:, late].mean(axis=1)
            told["trains"][name, beta] = values["train_positive"][:, late].mean(axis=1)
            told["unrests"][name, beta] = _unrest(values["test_positive"][:, late])
            numbers |= {
                f"{key}_slope": slope(history.rounds, square, s.offset),
                f"{key}_gap": mean(square[:, -1]),
                f"{key}_along_the_bias": mean((theta[:, -1] - stable) @ bias),
                f"{key}_risk": mean(values["risk"][:, -1]),
                f"{key}_early_risk": mean(values["risk"][:, theta.shape[1] // 10]),
            }
            numbers |= {f"{key}_{quantity[:-1]}": mean(each[name, beta]) for quantity, each in told.items()}
            if name == "DiceSGD":
                lines["memory"][f"beta = {beta:g}"] = _, memory = memory_of(history)
                size = math.sqrt(memory[:, late].mean())
                numbers |= {f"memory_growth_{beta:g}": growth(memory), f"memory_{beta:g}": size}
    for quantity, each in told.items():
        drops = [each[name, low] - each[name, high] for name in algorithms for low, high in itertools.pairwise(betas)]
        numbers[f"least_drop_of_{quantity}"] = min(_surely(drop) for drop in drops)
    rises = [told["unrests"][name, betas[-1]] - told["unrests"][name, betas[0]] for name in algorithms]
    numbers["least_rise_of_unrest"] = min(_surely(rise) for rise in rises)
    return Outcome(numbers, {name: lay_out(each) for name, each in lines.items()})


def _surely(values: np.ndarray) -> float:
    """The mean less three standard errors."""
    middle, error = mean(values)
    return middle - 3 * error


def _unrest(values: np.ndarray) -> np.ndarray:
    """Spread of each row about its own straight line."""
    x = np.linspace(-1, 1, values.shape[1])
    return np.asarray([(row - np.polyval(np.polyfit(x, row, 1), x)).std() for row in values])


def _points(people: Borrowers, stable: np.ndarray, limit: np.ndarray, clip: float) -> dict[str, float]:
    """What is exact about the table."""
    mu, L = people.curvature(stable)
    share = float(people.y.mean())
    return {
        f"response_error_{people.beta:g}": people.response_error(stable) / people.beta,
        f"bias_{people.beta:g}": float(np.sum((stable - limit) ** 2)),
        f"bias_length_{people.beta:g}": float(np.linalg.norm(stable - limit)),
        f"size_{people.beta:g}": float(np.linalg.norm(stable)),
        f"stable_train_positive_{people.beta:g}": float(people.rates(stable[None])[0][0]),
        f"stable_risk_{people.beta:g}": float(people.risk(stable[None])[0]),
        f"limit_risk_{people.beta:g}": float(people.risk(limit[None])[0]),
        f"memory_clip_needed_{people.beta:g}": float(np.linalg.norm(people.gradients(stable, clip).mean(axis=0))),
        "share_of_positives": share,
        f"most_beta_allowed_{people.beta:g}": mu / L,
        # Within the floor u(theta) = theta / floor, and the mean of x moves by this for a unit of theta.
        "sensitivity_over_beta": share / people.floor,
        "most_sensitivity_over_beta": 1 / people.floor,
    }


def _measure(people: Borrowers, others: Borrowers, theta: np.ndarray) -> dict[str, np.ndarray]:
    """Rates of people not seen and seen, [repeats, records], and the risk of the first few repeats."""
    tests, trains = (np.stack([who.rates(one) for one in theta], 1) for who in (others, people))
    risk = np.stack([people.risk(one) for one in theta[:_FEW]])
    return {"test_positive": tests[0], "test_negative": tests[1], "train_positive": trains[0], "risk": risk}

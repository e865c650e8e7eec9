"""Two groups that stay or leave: pricing (Figures 5a and 6b) and regression (Figure 5b) with dynamic contribution."""

from typing import Any

import numpy as np

import performative as pf
from performative.papers.outcome import Outcome, mean, over
from performative.papers.profl.runs import Runs, nearer, ratio, rounds_until, settled, wobble
from performative.papers.runs import given, late, models, traces


@given(Runs)
def two_groups(s: Runs, printed: list[float], corrected: list[float], edge: float) -> Outcome:
    """Shares (1 + theta) / 2 and the rest, with the paper's demands and with others, on [-edge, edge]."""
    share = pf.populations.shares.Linear(level=(0.5, 0.5), slope=(0.5, -0.5))

    def problem(demands: list[float]) -> pf.Problem:
        groups = tuple(pf.populations.Gaussian(np.full(s.clients, mu), 0.0, 0.5) for mu in demands)
        return pf.Problem(pf.losses.negative_revenue, pf.populations.Mixture(groups, share), domain=pf.Box(-edge, edge))

    instances = {"printed": printed, "corrected": corrected}
    settings = {
        f"{name}, {which}": {"algorithm": algorithm, "problem": problem(demands)}
        for name, algorithm in s.both.items()
        for which, demands in instances.items()
    }
    runs = s.sweep(problem(corrected), settings, stable=0.0, optimal=0.0)
    stable = -(corrected[0] + corrected[1]) / (corrected[0] - corrected[1])
    points = {"PFL": stable, "PROFL": stable / 2.0}
    numbers: dict[str, Any] = {}
    for name, own in points.items():
        # The printed demands cancel, which puts both points at 0.
        for which, point in (("printed", 0.0), ("corrected", own)):
            left = settled(runs[f"{name}, {which}"], point) / abs(s.start - point)
            numbers[f"{name.lower()}_{which}_over_start"] = mean(left)
        if stable:
            other = stable * 1.5 - own
            numbers[f"{name.lower()}_own_over_other"] = nearer(runs[f"{name}, corrected"], own, other)
    speed = (rounds_until(runs[f"{name}, corrected"], own) for name, own in points.items())
    numbers |= {"theta_PS": stable, "theta_PO": stable / 2.0, "rounds_pfl_over_profl": ratio(*speed)}
    return Outcome(numbers, {"model": traces(runs)})


@given(Runs)
def regression(s: Runs) -> Outcome:
    """Regression with dynamic contribution: PFL and PROFL, and the shape of the risk."""
    theta = np.linspace(-1.0, 5.0, 24_001)
    risk, pull = _leaving(theta, s.clients)
    slope = np.gradient(risk, theta)
    stable, optimal = (float(theta[np.argmin(of)]) for of in (np.abs(pull), risk))
    problem = pf.cases.regression_contribution(s.clients)
    runs = s.sweep(problem, s.both, stable=stable, optimal=optimal)
    inside = risk - risk.min() > 1e-6
    gap = {name: (late(models(run)).mean(axis=1) - optimal) / (stable - optimal) for name, run in runs.items()}
    numbers: dict[str, Any] = {
        "theta_PS": stable,
        "theta_PO": optimal,
        **{f"{name.lower()}_gap": (abs(mean(rows)[0]), mean(rows)[1]) for name, rows in gap.items()},
        "rounds_pfl_over_profl": ratio(rounds_until(runs["PFL"], stable), rounds_until(runs["PROFL"], optimal)),
        "wobble_pfl_over_profl": ratio(wobble(runs["PFL"]), wobble(runs["PROFL"])),
        "least_curvature": float(np.gradient(slope, theta).min()),
        "pl_constant": float(np.min(slope[inside] ** 2 / 2.0 / (risk - risk.min())[inside])),
    }
    shown = over(theta[::80], {"performative risk": risk[::80]})
    return Outcome(numbers, {"model": traces(runs), "risk": shown})


def _leaving(theta: np.ndarray, clients: int) -> tuple[np.ndarray, np.ndarray]:
    """Risk of `pf.cases.regression_contribution`, and the gradient of the loss on the data that theta induces.

    theta_PO minimizes the first; theta_PS is a zero of the second.
    """
    second = 7.0 + 2.0 * (np.arange(clients) + 0.5) / clients  # E x^2 of each client
    off = np.stack([theta[:, None] - a for a in (1.0, 3.0)])
    errors = off**2 * second + 4.0
    share = (errors[::-1] + 5.0) / (errors + 5.0).sum(axis=0)
    risk, pull = (np.mean(np.sum(share * part, axis=0), axis=1) for part in (errors / 2.0, off * second))
    return risk + 10 / 3 * theta**2 / 2.0, pull + 10 / 3 * theta

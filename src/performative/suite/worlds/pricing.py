"""Prices: demand falls, customers leave, goods substitute for each other."""

import dataclasses

import numpy as np

from performative import losses
from performative.cases import pricing_contribution, pricing_demands
from performative.domains import Box
from performative.populations import Pricing
from performative.problem import Problem
from performative.suite.budget import Budget
from performative.suite.registry import register
from performative.suite.setting import Setting


def stable_prices(problem: Problem) -> np.ndarray:
    """Prices at which the mean demand is 0: at fixed demand, revenue then has zero gradient."""
    population = problem.population
    assert isinstance(population, Pricing)
    mean, slope = population.averages(problem.client_weights)
    return np.asarray(-mean / slope)


@register("pricing-demand-v1", family="pricing")
def demand() -> Setting:
    """Prices of five goods at ten shops whose demand falls as they rise, Z_i ~ N(mu_i - gamma_i theta, 1), loss minus
    the revenue. At fixed demand, higher prices always earn more, so full retraining jumps to a corner of the box
    [0, 4]; the stable point is twice the optimal one (Zheng et al. 2024, Figure 1a)."""
    problem = dataclasses.replace(pricing_demands(), domain=Box(0.0, 4.0))
    known = {"sensitivity": 3.0, "strong_convexity": 0.0, "smoothness": 0.0, "noise": 1.0}
    stable = stable_prices(problem)
    return Setting(
        problem, Budget(60, 60_000, 60), rows=20, start=np.full(5, 1.0), stable=stable, optimal=stable / 2,
        constants=known, advice="pf.pofl",
    )  # fmt: skip


@register("pricing-contribution-v1", family="pricing")
def contribution() -> Setting:
    """One price for two groups with fixed demand, 1 and 3, who stay as long as they can afford it. At the current mix,
    a higher price always earns more: retraining goes to the highest, 3, while 2.75 earns most (Zheng et al. 2024,
    Figures 1b and 1c)."""
    return Setting(
        pricing_contribution(), Budget(60, 60_000, 60), rows=50, start=1.0, constants={"noise": 0.5},
        advice="pf.pofl",
    )  # fmt: skip


@register("pricing-substitutes-v1", family="pricing")
def substitutes() -> Setting:
    """Prices of three goods that substitute for each other at six shops: demand for one falls with its own price and
    rises with the prices of the others, Z_i ~ N(demand_i - G_i theta, 1), G_i not symmetric; loss minus the revenue
    plus half the square of the prices. theta_PS = (G + 1)^-1 m, theta_PO = (G + G^T + 1)^-1 m."""
    rng = np.random.default_rng(11)
    clients, goods = 6, 3
    own = rng.uniform(1.0, 2.0, (clients, goods))
    cross = rng.uniform(0.0, 0.4, (clients, goods, goods)) * (1 - np.eye(goods))
    matrices = own[:, :, None] * np.eye(goods) - cross
    level = rng.uniform(4.0, 8.0, (clients, goods))
    problem = Problem(losses.revenue(1.0), Pricing(level, matrices, 1.0))
    m, G, eye = level.mean(axis=0), matrices.mean(axis=0), np.eye(goods)
    known = {
        "sensitivity": float(np.linalg.norm(matrices, 2, axis=(1, 2)).mean()),
        "strong_convexity": 1.0, "smoothness": 1.0, "noise": 1.0,
    }  # fmt: skip
    return Setting(
        problem, Budget(60, 60_000, 60), rows=50, constants=known,
        stable=np.linalg.solve(G + eye, m), optimal=np.linalg.solve(G + G.T + eye, m), advice="pf.pofl",
    )  # fmt: skip

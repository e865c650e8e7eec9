"""Worlds that remember past models, and worlds that change by themselves."""

import numpy as np

from performative import losses
from performative.cases import credit
from performative.paths import Linear, Periodic
from performative.populations import Drifting, Gaussian, Pools, Pricing, Sluggish
from performative.problem import Problem
from performative.suite.budget import Budget
from performative.suite.registry import register
from performative.suite.setting import Setting

_EPS, _MEAN = np.linspace(-0.5, 1.3, 10), np.arange(9.0, -1.0, -1.0)
_KNOWN = {
    "sensitivity": float(np.abs(_EPS).mean()), "strong_convexity": 1.0, "smoothness": 1.0, "noise": 1.0,
}  # fmt: skip


@register("memory-sluggish-v1", family="memory")
def sluggish() -> Setting:
    """Ten clients as in gaussian-federation-v1, whose people take notice slowly: the model they feel moves a fifth of
    the way to the deployed one each spell. What is seen at once understates the reaction; waiting costs time. The
    points are those of people without memory (Brown, Hod and Kalemaj 2022)."""
    problem = Problem(losses.squared, Sluggish(Gaussian(_MEAN, _EPS, 1.0), 0.2))
    return Setting(problem, Budget(50, 20_000, 200), rows=20, constants={**_KNOWN, "speed": 0.2})


@register("memory-pools-v1", family="memory")
def pools() -> Setting:
    """Ten clients as in gaussian-federation-v1 with three kinds of people: half react at once, three in ten with speed
    0.3, two in ten with speed 0.05. After a few spells the data seem at rest, and are not."""
    share, speed = np.array([0.5, 0.3, 0.2]), np.array([1.0, 0.3, 0.05])
    problem = Problem(losses.squared, Pools(Gaussian(_MEAN, _EPS, 1.0), share, speed))
    return Setting(problem, Budget(50, 20_000, 400), rows=20, constants={**_KNOWN, "slowest": 0.05})


@register("memory-credit-v1", family="memory")
def slow_credit() -> Setting:
    """The made-up credit bureau of credit-strategic-v1 with applicants who adapt over years: each spell they close
    three tenths of the distance to their best response."""
    problem = credit()
    slow = Problem(problem.loss, Sluggish(problem.population, 0.3), weights=problem.weights)
    known = {"sensitivity": 1.25, "speed": 0.3}
    return Setting(slow, Budget(40, 40_000, 160), rows=50, constants=known, starts=1)


@register("drift-linear-v1", family="drift")
def linear() -> Setting:
    """Ten clients as in gaussian-federation-v1 whose means grow by 0.1 each spell, whatever is deployed: a learner that
    averages the past lags, one that looks at the last rows only is noisy. Scored at the end of the budget."""
    problem = Problem(losses.squared, Drifting(Gaussian(_MEAN, _EPS, 1.0), Linear(0.1)))
    return Setting(problem, Budget(60, 24_000, 60), rows=20, constants={**_KNOWN, "velocity": 0.1})


@register("drift-seasonal-v1", family="drift")
def seasonal() -> Setting:
    """Two prices at four shops whose demand has a season of 12 spells of amplitude 1.5 beside its reaction to prices;
    loss minus the revenue plus half the square of the prices. 57 spells end between two seasons."""
    rng = np.random.default_rng(13)
    demand, reaction = rng.uniform(4.0, 7.0, (4, 2)), rng.uniform(0.5, 1.5, (4, 2))
    problem = Problem(losses.revenue(1.0), Drifting(Pricing(demand, reaction, 1.0), Periodic(1.5, 12.0)))
    known = {"sensitivity": float(reaction.max()), "strong_convexity": 1.0, "smoothness": 1.0, "noise": 1.0}
    return Setting(problem, Budget(57, 20_000, 57), rows=50, constants=known, advice="pf.pofl")

"""Worlds that remember past models, and worlds that drift on their own."""

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
    """Ten clients as in gaussian-federation-v1, whose people adapt slowly: at each time step, the model they respond to
    moves a fifth of the way to the deployed one. Data observed right away understate the reaction; waiting costs time.
    The points are those of people without memory (Brown, Hod and Kalemaj 2022)."""
    problem = Problem(losses.squared, Sluggish(Gaussian(_MEAN, _EPS, 1.0), 0.2))
    return Setting(problem, Budget(50, 20_000, 200), rows=20, constants={**_KNOWN, "speed": 0.2})


@register("memory-pools-v1", family="memory")
def pools() -> Setting:
    """Ten clients as in gaussian-federation-v1 with three kinds of people: half react immediately, 30% with speed
    0.3, and 20% with speed 0.05. After a few time steps the data seem to have settled, but have not."""
    share, speed = np.array([0.5, 0.3, 0.2]), np.array([1.0, 0.3, 0.05])
    problem = Problem(losses.squared, Pools(Gaussian(_MEAN, _EPS, 1.0), share, speed))
    return Setting(problem, Budget(50, 20_000, 400), rows=20, constants={**_KNOWN, "slowest": 0.05})


@register("memory-credit-v1", family="memory")
def slow_credit() -> Setting:
    """The synthetic credit bureau of credit-strategic-v1 with applicants who adapt over years: at each time step they
    close 30% of the distance to their best response."""
    problem = credit()
    slow = Problem(problem.loss, Sluggish(problem.population, 0.3), weights=problem.weights)
    known = {"sensitivity": 1.25, "speed": 0.3}
    return Setting(slow, Budget(40, 40_000, 160), rows=50, constants=known, starts=1)


@register("drift-linear-v1", family="drift")
def linear() -> Setting:
    """Ten clients as in gaussian-federation-v1 whose means grow by 0.1 per time step, whatever is deployed: a learner
    that averages the past lags, one that uses only the latest rows is noisy. Scored at the end of the budget."""
    problem = Problem(losses.squared, Drifting(Gaussian(_MEAN, _EPS, 1.0), Linear(0.1)))
    return Setting(problem, Budget(60, 24_000, 60), rows=20, constants={**_KNOWN, "velocity": 0.1})


@register("drift-seasonal-v1", family="drift")
def seasonal() -> Setting:
    """Two prices at four shops whose demand has a seasonal cycle of period 12 and amplitude 1.5, besides its reaction
    to prices; loss minus the revenue plus half the square of the prices. The 57 time steps end in mid-cycle."""
    rng = np.random.default_rng(13)
    demand, reaction = rng.uniform(4.0, 7.0, (4, 2)), rng.uniform(0.5, 1.5, (4, 2))
    problem = Problem(losses.revenue(1.0), Drifting(Pricing(demand, reaction, 1.0), Periodic(1.5, 12.0)))
    known = {"sensitivity": float(reaction.max()), "strong_convexity": 1.0, "smoothness": 1.0, "noise": 1.0}
    return Setting(problem, Budget(57, 20_000, 57), rows=50, constants=known, advice="pf.pofl")

"""Groups that come and go, and slopes that follow the model."""

import numpy as np

from performative import losses
from performative.cases import house_pricing, regression_contribution
from performative.domains import Box
from performative.populations import Gaussian, Mixture, Regression
from performative.populations.shares import Linear
from performative.problem import Problem
from performative.suite.budget import Budget
from performative.suite.registry import register
from performative.suite.setting import Setting


@register("retention-regression-v1", family="mixtures")
def retention() -> Setting:
    """Retailers of two kinds, y = x or y = 3 x plus noise, who leave when their predictions are poor, at ten clients
    with features of different variance. The risk has one stationary point and is nonconvex (Zheng et al. 2024, Figure
    5b)."""
    return Setting(
        regression_contribution(),
        Budget(60, 60_000, 60),
        rows=50,
        start=3.0,
        constants={"noise": 2.0},
        advice="pf.pofl",
    )


@register("retention-linear-v1", family="mixtures")
def linear_shares() -> Setting:
    """Two groups at five clients, N(-1 + 0.2 theta, 1) and N(3 + 0.4 theta, 1), whose shares follow the model linearly,
    by 0.02 to 0.06 per unit: serving one group drives the other away, which reinforces itself. Models lie in [-6, 6],
    where shares stay inside the simplex."""
    clients = 5
    pull = np.linspace(0.02, 0.06, clients)
    groups = (Gaussian(np.full(clients, -1.0), 0.2, 1.0), Gaussian(np.full(clients, 3.0), 0.4, 1.0))
    share = Linear(np.full((clients, 2), 0.5), np.stack([-pull, pull], axis=1))
    problem = Problem(losses.squared, Mixture(groups, share), domain=Box(-6.0, 6.0))
    known = {"strong_convexity": 1.0, "smoothness": 1.0, "noise": 1.0}
    return Setting(problem, Budget(60, 30_000, 60), rows=50, start=-5.0, constants=known)


@register("house-pricing-v1", family="regression")
def house() -> Setting:
    """List prices that move what houses sell for, y = (5/3 + gamma_i theta) x + noise, gamma_i in [1.17, 2.17] at ten
    clients, ridge loss. Retraining does settle, but far from the optimum, at many times the cost of the model that is
    never retrained (Izzo, Ying and Zou 2021; Zheng et al. 2024, Table 1)."""
    return Setting(
        house_pricing(alpha=0.5), Budget(60, 60_000, 60), rows=100, start=0.0,
        constants={"noise": 61 / 30, "sensitivity": 5 / 3}, advice="pf.pofl",
    )  # fmt: skip


@register("regression-slopes-v1", family="regression")
def slopes() -> Setting:
    """Regression with three features at six clients whose slopes follow the model, y = (b_i - R_i theta) . x + noise:
    R_i are matrices, features are correlated, and no two clients are alike. Points are exact. The stable one costs more
    than the model that is never retrained (its score is about -2): short steps stop before it."""
    rng = np.random.default_rng(51)
    clients, d = 6, 3
    factor = rng.standard_normal((clients, d, d))
    cov = factor @ np.swapaxes(factor, 1, 2) / d + 0.5 * np.eye(d)
    matrices = rng.uniform(-0.6, 0.3, (clients, d, d))
    slope = rng.normal(1.0, 0.7, (clients, d))
    population = Regression(rng.normal(0.0, 0.5, (clients, d)), cov, slope, matrices, 1.0)
    problem = Problem(losses.ridge(0.2), population)
    known = {"noise": 1.0, "strong_convexity": 0.2}
    return Setting(problem, Budget(60, 60_000, 60), rows=100, start=np.full(3, -2.0), constants=known, advice="pf.pofl")

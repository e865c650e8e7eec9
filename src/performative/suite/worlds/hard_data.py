"""Data that are contaminated, private, or heterogeneous: points are known, and the learner sees less."""

import dataclasses

import numpy as np
from scipy import optimize, stats

from performative import data, losses, partition
from performative.cases import pricing_demands, quadratic
from performative.data import DATA_SETS
from performative.domains import Box
from performative.populations import Contaminated, Gaussian, Outliers, Strategic
from performative.problem import SCALED_BY_ROWS, Problem
from performative.suite.budget import Budget
from performative.suite.registry import register
from performative.suite.setting import Clipping, Setting
from performative.suite.worlds.pricing import stable_prices

_EPS, _MEAN = np.linspace(-0.5, 1.3, 10), np.arange(9.0, -1.0, -1.0)
_KNOWN = {"strong_convexity": 1.0, "smoothness": 1.0, "noise": 1.0}


@register("contaminated-gaussian-v1", family="contaminated")
def contaminated() -> Setting:
    """The ten clients of gaussian-federation-v1; one row in ten comes from N(40, 1) instead. Models are scored on
    people without the outliers, so a mean is biased, and a median or a filter is not."""
    inner = Gaussian(_MEAN, _EPS, 1.0)
    outside = Outliers(np.full(10, 40.0), 1.0)
    problem = Problem(losses.squared, Contaminated(inner, 0.1, outside))
    judged = Problem(losses.squared, inner)
    known = {**_KNOWN, "contamination": 0.1}
    return Setting(problem, Budget(50, 50_000, 50), rows=50, judged=judged, constants=known, advice="pf.profl")


@register("contaminated-pricing-v1", family="contaminated")
def contaminated_pricing() -> Setting:
    """The prices of pricing-demand-v1 with one row in ten from N(20, 1): a few fake customers who seem to buy at any
    price push prices up. Scored without them (Zheng et al. 2024, Figure 1a)."""
    box = Box(0.0, 4.0)
    problem = dataclasses.replace(pricing_demands(contamination=0.1), domain=box)
    judged = dataclasses.replace(pricing_demands(), domain=box)
    stable = stable_prices(judged)
    return Setting(
        problem, Budget(60, 60_000, 60), rows=50, start=np.full(5, 1.0), judged=judged, stable=stable,
        optimal=stable / 2, constants={"noise": 1.0, "contamination": 0.1}, advice="pf.profl",
    )  # fmt: skip


def _epsilon(multiplier: float, delta: float) -> float:
    """Epsilon of one Gaussian mechanism (Balle and Wang 2018, Theorem 8)."""

    def excess(eps: float) -> float:
        half = 1 / (2 * multiplier)
        rest = np.exp(eps) * stats.norm.cdf(-half - eps * multiplier)
        return float(stats.norm.cdf(half - eps * multiplier) - rest - delta)

    return float(optimize.brentq(excess, 0.0, 50.0))


@register("private-means-v1", family="private")
def private_means() -> Setting:
    """The ten clients of gaussian-federation-v1 for a learner that sees no individual: each client sends the mean of
    rows clipped to 12, plus noise of standard deviation 4 * 12 / n. People are new in each deployment, so each is in
    one release. More rows per deployment mean less noise, and fewer deployments."""
    problem = Problem(losses.squared, Gaussian(_MEAN, _EPS, 1.0))
    clipping = Clipping(12.0, 4.0, _epsilon(4.0, 1e-5), 1e-5)
    known = {**_KNOWN, "epsilon": clipping.epsilon, "delta": clipping.delta}
    return Setting(
        problem, Budget(50, 50_000, 50), rows=100, sees="means", clipping=clipping, constants=known,
        advice="pf.pcsgd",
    )  # fmt: skip


@register("private-quadratic-v1", family="private")
def private_quadratic() -> Setting:
    """Two-point data that follow the model, loss |theta + a z|^2 / 2, one thousand people (Li, Yemini and Wai 2024,
    Section 5): rows are visible, but a learner must guarantee (epsilon, delta) = (1, 1e-5) for each person over all
    deployments, as accounted by `pf.privacy`; the leaderboard excludes methods that do not. Clipping biases plain
    clipped SGD; DiceSGD has no such bias, but its guarantee costs far more."""
    problem = quadratic(beta=0.05, rows=1000)
    known = {"epsilon": 1.0, "delta": 1e-5, "strong_convexity": 1.0, "smoothness": 1.0}
    return Setting(problem, Budget(200, 20_000, 200), rows=100, constants=known, advice="pf.dicesgd")


@register("unequal-dirichlet-v1", family="unequal")
def dirichlet() -> Setting:
    """The breast cancer table at twelve clinics, split by a Dirichlet(0.3) draw over labels: some see hardly any
    malignant cases, sizes range from 8 to 131 rows, and those with few rows react most (strength up to 3). Real
    features, simulated reaction."""
    table = data.breast_cancer()
    x = (table.x - table.x.mean(axis=0)) / table.x.std(axis=0)
    x, y = np.column_stack([x[:, :10], np.ones(len(x))]), (table.y == 0).astype(np.int64)
    tables, labels, count = partition.tables(x, y, partition.dirichlet(y, 12, 0.3, seed=2, least=8))
    strength = np.empty(12)
    strength[np.argsort(-count)] = np.linspace(0.0, 3.0, 12)
    population = Strategic(tables, labels, strength, features=tuple(range(10)), count=count)
    problem = Problem(
        losses.logistic(0.05, intercept=10), population, weights=count / len(y), from_data=(SCALED_BY_ROWS,)
    )
    known = {"sensitivity": float(strength @ count / len(y)), "strong_convexity": 0.0}
    return Setting(
        problem, Budget(40, 40_000, 40), rows=30, constants=known, license=DATA_SETS["breast_cancer"].license, starts=0
    )


@register("unequal-rare-v1", family="unequal")
def rare() -> Setting:
    """The ten clients of gaussian-federation-v1, some of which are rarely available: the probability of responding
    falls from 1 to 0.05 as their people react more. Averaging only present clients learns for those who do not
    react."""
    problem = Problem(losses.squared, Gaussian(_MEAN, _EPS, 1.0))
    answers = np.geomspace(1.0, 0.05, 10)
    return Setting(problem, Budget(80, 40_000, 80), rows=50, answers=answers, constants=_KNOWN)


@register("unequal-work-v1", family="unequal")
def work() -> Setting:
    """The ten clients of gaussian-federation-v1, the slowest of which complete a fifth of their rows, or of their local
    steps, before the next deployment; the faster a client, the more its people react. A plain average of the updates
    favors the fast ones; in the black box, `rows` is the number of rows each client processed."""
    problem = Problem(losses.squared, Gaussian(_MEAN, _EPS, 1.0))
    return Setting(problem, Budget(60, 30_000, 60), rows=50, work=np.linspace(0.2, 1.0, 10), constants=_KNOWN)


@register("unequal-many-v1", family="unequal")
def many() -> Setting:
    """Two hundred clients with power-law weights, the heaviest fifty times the mean; random eps_i from -1 to 1.5,
    with their own means and noise levels, half of them responding to a deployment. Rows are few: five per client."""
    rng = np.random.default_rng(61)
    weights = np.arange(1.0, 201.0) ** -1.2
    eps = rng.uniform(-1.0, 1.5, 200)
    population = Gaussian(5.0 - 3.0 * eps + rng.standard_normal(200), eps, rng.uniform(0.5, 3.0, 200))
    problem = Problem(losses.squared, population, weights=weights / weights.sum())
    return Setting(
        problem,
        Budget(60, 60_000, 60),
        rows=5,
        start=20.0,
        answers=np.full(200, 0.5),
        constants={**_KNOWN, "noise": 3.0},
    )

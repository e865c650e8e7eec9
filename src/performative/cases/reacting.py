"""The five case studies of Zheng et al. 2024, Section 6, with their constants as corrected.

If clients differ in one number, it lies on the midpoint grid of its interval, so a problem is reproducible. What the
paper leaves open is chosen here, and documented.
"""

import numpy as np

from performative import losses
from performative._base.arguments import checked
from performative._base.checks import check_counts, check_number, check_room
from performative._deprecated import old_keywords
from performative.domains import Box
from performative.facts import cites
from performative.populations import Classes, Contaminated, Gaussian, Mixture, Outliers, Pricing, Regression
from performative.populations.base import AbstractPopulation
from performative.populations.shares import Budgets, Losses
from performative.problem import Problem


def _grid(low: float, high: float, clients: int) -> np.ndarray:
    """Midpoints of equal subintervals, one per client."""
    check_counts(clients=clients)
    check_room("clients", 16 * clients, clients=clients)
    return low + (high - low) * (np.arange(clients) + 0.5) / clients


@cites("zheng2024profl")
@checked
def pricing_demands(
    clients: int = 10, goods: int = 5, contamination: float = 0.0, outlier: float = 20.0, seed: int = 0
) -> Problem:
    """Prices of goods whose demand falls as they rise. Figure 1a.

        Z_i ~ N(mu_i - gamma_i theta, 1),      gamma_i in [1, 3],      mu_i in [6, 7] by good,      loss -theta.Z

    mu_i is drawn uniformly with `seed`. A fraction `contamination` of the samples comes from N(outlier, 1) instead; the
    paper does not specify its outliers. theta_PS = mu_bar / gamma_bar and theta_PO is half of it.
    """
    check_counts(clients=clients, goods=goods)
    check_room("pricing_demands", 8 * clients * goods, clients=clients, goods=goods)
    check_number("pricing_demands", outlier=outlier)
    if not 0 <= contamination < 1:
        raise ValueError(f"pricing_demands: contamination is a fraction and must lie in [0, 1); got {contamination}.")
    demand = np.random.default_rng(seed).uniform(6.0, 7.0, (clients, goods))
    sensitivity = np.repeat(_grid(1.0, 3.0, clients)[:, None], goods, axis=1)
    population: AbstractPopulation = Pricing(demand, sensitivity, 1.0)
    if contamination:
        population = Contaminated(population, contamination, Outliers(np.full((clients, goods), outlier), 1.0))
    return Problem(losses.negative_revenue, population)


@cites("zheng2024profl")
@checked
def pricing_contribution(clients: int = 10) -> Problem:
    """One price for two groups with fixed demand who stay as long as they can afford it. Figures 1b, 1c and 2.

        Z | group k ~ N(mu_k, 1/4),      nu_k ~ B_i - theta mu_k,      1 / B_i in [0.09, 0.11],      loss -theta Z

    The paper gives gamma_i in [0.09, 0.11] and no demands; here gamma_i = 1 / B_i and mu = (1, 3). Both demands are
    positive, so a higher price always earns more: there is no stable point in the interior, and retraining goes to the
    highest price, 3, at which the last budget is nearly spent. theta_PO = 2.75 lies in the interior.
    """
    gamma = _grid(0.09, 0.11, clients)
    groups = tuple(Gaussian(np.full(clients, demand), 0.0, 0.5) for demand in (1.0, 3.0))
    share = Budgets(demand=(1.0, 3.0), budget=1.0 / gamma)
    return Problem(losses.negative_revenue, Mixture(groups, share), domain=Box(0.0, 3.0))


@cites("zheng2024profl")
@checked
def strategic_classes(kind: str = "different", clients: int = 10) -> Problem:
    """People who change their features to please a classifier. Table 2, synthetic.

        x | y ~ N(mean_y - gamma_{i,y} theta, 1/4),      gamma_{i,1} in [2.8, 3.2],      gamma_{i,0} in [0, 0.04]

    "same": one feature with means 1 (y = 0) and -1 (y = 1). "different": a second one with means 1 and -0.8. The loss
    is logistic with an L2 penalty of 0.01. There is an intercept, which the paper does not mention: without one the
    printed accuracies of "different" cannot be reached; with it they are.
    """
    means = {"same": [[1.0], [-1.0]], "different": [[1.0, 1.0], [-1.0, -0.8]]}
    if kind not in means:
        raise ValueError(f'strategic_classes: kind must be "same" or "different"; got {kind!r}.')
    sensitivity = np.stack([_grid(0.0, 0.04, clients), _grid(2.8, 3.2, clients)], axis=1)
    population = Classes(means[kind], sensitivity, scale=0.5, intercept=True)
    return Problem(losses.logistic(0.01), population)


@cites("izzo2021learn", "zheng2024profl")
@old_keywords
@checked
def house_pricing(alpha: float = 0.0, clients: int = 10, center: float = 5 / 3) -> Problem:
    """List prices that affect the prices at which houses sell. Table 1, Figures 3 and 4.

        y = (5/3 + gamma_i theta) x + noise,      x ~ N(5/3, 1),      gamma_i in [center - alpha, center + alpha]

    Loss ((y - theta x)^2 + (10/3) theta^2) / 2, noise of standard deviation 61/30. This is the instance of Izzo, Ying
    and Zou 2021, whose numbers Table 1 has; the text prints a minus and center 1.5.
    theta_PO = -0.837438 with loss 5.556549 at alpha = 0.
    """
    check_number("house_pricing", alpha=alpha, center=center)
    gamma = _grid(center - alpha, center + alpha, clients)
    population = Regression(
        features_mean=np.full(clients, 5 / 3), features_cov=1.0, slope=5 / 3, sensitivity=-gamma, noise=61 / 30
    )
    return Problem(losses.ridge(10 / 3), population)


@cites("zheng2024profl")
@checked
def regression_contribution(clients: int = 10) -> Problem:
    """Retailers of two kinds who leave when their predictions are poor. Figure 5b.

        y = x + noise or y = 3 x + noise,      nu_k ~ l_{-k}(theta) + 5,      x ~ N(0, s_i),      noise variance 4

    Loss ((y - theta x)^2 + (10/3) theta^2) / 2. The paper gives neither x nor c; with s_i in [7, 9] and c = 5 the risk
    has one stationary point and negative curvature elsewhere: Polyak-Lojasiewicz, not convex. theta_PS = 0.95 and
    theta_PO = 0.84.
    """
    variance = _grid(7.0, 9.0, clients)
    center = np.zeros(clients)
    groups = tuple(Regression(center, variance, slope, 0.0, noise=2.0) for slope in (1.0, 3.0))
    share = Losses(slope=(1.0, 3.0), second_moment=variance, noise=2.0, offset=5.0)
    return Problem(losses.ridge(10 / 3), Mixture(groups, share))

"""Further methods for performative prediction: past data, other models, other objectives."""

from collections.abc import Callable
from typing import Unpack

from jaxtyping import Array

from performative._base.checks import check_counts
from performative.aggregators import ConfidenceBounds
from performative.algorithm import Algorithm, Parts, check_rate
from performative.deploy import Explore
from performative.estimators import ModelRisks, PlugIn, Robust, Snapshots, ZerothOrder
from performative.facts import cites
from performative.recipes.making import combine, recipe
from performative.schedules import Power, Rate
from performative.types import ArrayLike, Theta, as_array


@recipe
@cites("khorsandi2025tight", "perdomo2020performative")
def snapshots(
    rate: Rate, k: int, weights: ArrayLike | None = None, rows: int | None = None, **parts: Unpack[Parts]
) -> Algorithm:
    """Steps on the last k data sets, one per deployment (`Snapshots`). Converges to the stable point for -k < eps < 1.

    eps is how far the mean of the data follows the model, as in `Snapshots`. Local steps should reach the minimum: use
    a rate of 1 for the squared loss, or many steps. `rows` is the number of rows that a client keeps of each data set;
    None keeps all rows of a fixed-size batch, over the local steps of a round. Khorsandi et al. 2025.

    Example:

        import performative as pf

        problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian([1.0], -1.5, 0.0))
        print(pf.run(problem, pf.snapshots(1.0, k=2), rounds=60, theta=0.0).final)      # k = 1 would diverge
    """
    if rows is None:
        size = getattr(parts.get("batch"), "n", None) if "batch" in parts else 1
        if not isinstance(size, int):
            raise ValueError(
                "snapshots: this batch has no fixed size; pass rows, the number of samples to keep of each data set."
            )
        steps = parts.get("local_steps", 1)
        check_counts(local_steps=steps)
        rows = size * steps
    return combine("snapshots", rate, {"estimator": Snapshots(k, rows, weights), "deploy": "round"}, parts)


@recipe
@cites("agarwal2010optimal", "miller2021outside", "perdomo2020performative")
def two_point(rate: Rate, radius: ArrayLike, **parts: Unpack[Parts]) -> Algorithm:
    """Zeroth order: theta + radius u and theta - radius u are deployed in turn, and only their losses are compared.

        v = d (L(theta + radius u) - L(theta - radius u)) / (2 radius) u,      a step every second round

    It needs no model of how people react, and converges to the optimal point if the performative risk is convex (at any
    radius if it is quadratic). Every round is a deployment. See `ZerothOrder` and `pf.Explore`.

    Example:

        import performative as pf

        problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian([1.0, 3.0], [0.2, 0.6], 0.0))
        print(pf.run(problem, pf.two_point(0.5, radius=1.0), rounds=200, theta=0.0).final, pf.optimal_point(problem))
    """
    return combine("two_point", rate, {"estimator": ZerothOrder(2), "deploy": Explore(radius)}, parts)


@recipe
@cites("flaxman2005online", "miller2021outside", "perdomo2020performative")
def one_point(rate: Rate, radius: ArrayLike, **parts: Unpack[Parts]) -> Algorithm:
    """Zeroth order with one deployment per step: v = d L(theta + radius u) / radius u.

    Unbiased like `two_point`, but with a variance that larger batches do not remove: use small, decaying rates.
    Flaxman, Kalai and McMahan 2005.

    Example:

        import performative as pf

        print(pf.one_point(pf.schedules.harmonic(2.0, 100.0), radius=1.0).estimator)
    """
    return combine("one_point", rate, {"estimator": ZerothOrder(1), "deploy": Explore(radius, pairs=False)}, parts)


@recipe
@cites("lin2024plugin", "perdomo2020performative")
def plug_in(
    rate: Rate, radius: ArrayLike, deployments: int, features: Callable[[Theta], Array] | None = None,
    **parts: Unpack[Parts],
) -> Algorithm:  # fmt: skip
    """Plug-in: fit a linear reaction to a few deployments around the start, then minimize the risk that it predicts.

    The first `deployments` rounds deploy the start and models `radius` away from it along the axes, at least d + 1;
    after that nothing new is deployed, and steps go to the optimal point of the fitted reaction (`PlugIn`). `features`
    is the form that is fitted, None for the linear one. Lin and Zrnic 2024.

    Example:

        import performative as pf

        problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian([1.0, 3.0], [0.2, 0.6], 0.0))
        found = pf.run(problem, pf.plug_in(0.5, radius=1.0, deployments=2), rounds=60, theta=0.0).final
        print(found, pf.optimal_point(problem))
    """
    estimator = PlugIn(deployments, features)
    explore = Explore(radius, pairs=False, directions="axes", rounds=deployments)
    return combine("plug_in", rate, {"estimator": estimator, "deploy": explore}, parts)


@recipe
@cites("duchi2021learning", "xue2024distributionally", "perdomo2020performative")
def robust(rate: Rate, radius: ArrayLike, divergence: str = "kl", **parts: Unpack[Parts]) -> Algorithm:
    """Distributionally robust steps: against the worst distribution within `radius` of the data (`Robust`).

    Batches must be large: n samples carry no information about distributions farther than log(n). Xue and Sun 2024.

    Example:

        import performative as pf

        print(pf.robust(0.1, radius=0.05, batch=pf.Fixed(200)).estimator)
    """
    return combine("robust", rate, {"estimator": Robust(radius, divergence)}, parts)


@recipe
@cites("farina2026stability", "zinkevich2003online", "perdomo2020performative")
def no_regret(rate: Rate, **parts: Unpack[Parts]) -> Algorithm:
    """No-regret learning: gradient steps rate / sqrt(t + 1) over a bounded domain, each model deployed.

    Its solution is not the last model but all of them: the distribution of `history.theta` has a mean regret that goes
    to 0 or below (`pf.mixed_regret`), whatever people do, even if their response is discontinuous and no single model
    is stable. A `rate` that is a schedule is used unchanged. Farina and Perdomo 2026; Zinkevich 2003.

    Example:

        import performative as pf

        problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian([1.0], 0.5, 1.0), domain=pf.Box(-4.0, 4.0))
        history = pf.run(problem, pf.no_regret(0.5), rounds=100, theta=-4.0)
        print(pf.mixed_regret(problem, history.theta[0]))
    """
    if not callable(rate):
        check_rate(as_array(rate))
        rate = Power(rate)
    return combine("no_regret", rate, {"deploy": "round"}, parts)


@recipe
@cites("jagadeesan2022regret", "perdomo2020performative")
def confidence_bounds(models: ArrayLike, slope: ArrayLike, error: ArrayLike = 0.0, **parts: Unpack[Parts]) -> Algorithm:
    """Search among listed models by confidence bounds: deploy the model that could still be the best.

    One deployment bounds the performative risk of all models (`ConfidenceBounds`): |PR(theta) - DPR(theta', theta)| <=
    slope |theta - theta'|, slope = L_z eps. If that holds, it finds the best of them, convex or not; a round is a
    deployment. There is no rate: the bounds determine the server's step. Jagadeesan, Zrnic and Mendler-Duenner 2022.

    Example:

        import numpy as np
        import performative as pf

        problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian([1.0, 3.0], [0.2, 0.6], 0.0))
        search = pf.confidence_bounds(np.linspace(0.0, 4.0, 81), slope=2.0)
        print(pf.run(problem, search, rounds=40, theta=0.0).final, pf.optimal_point(problem))
    """
    own = {"estimator": ModelRisks(models), "aggregator": ConfidenceBounds(models, slope, error), "deploy": "round"}
    return combine("confidence_bounds", 1.0, own, parts)

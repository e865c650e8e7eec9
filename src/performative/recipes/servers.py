"""Servers that do more than average: momentum, adaptive steps, fairness."""

from typing import Unpack

from performative._base.checks import check_number, check_rule
from performative.aggregators import Agnostic, QFair, ServerOpt
from performative.algorithm import Algorithm, Parts
from performative.estimators import WithLoss
from performative.facts import cites
from performative.optimizers import AbstractOptimizer, Adam, Momentum, Yogi
from performative.recipes.making import combine, recipe, wrapped
from performative.schedules import Rate
from performative.types import ArrayLike


@recipe
@cites("hsu2019measuring", "reddi2021adaptive")
def fedavgm(rate: Rate, server_rate: ArrayLike = 1.0, momentum: ArrayLike = 0.9, **parts: Unpack[Parts]) -> Algorithm:
    """FedAvgM: server momentum. Converges to the same point as FedAvg.

        m <- momentum m + mean update,      theta <- theta + server_rate m

    Hsu, Qi and Brown 2019.

    Example:

        import performative as pf

        print(pf.fedavgm(0.1, momentum=0.5).aggregator)
    """
    check_number("fedavgm", momentum=momentum)
    check_rule("fedavgm", "must lie in [0, 1)", momentum=momentum)
    return _served("fedavgm", rate, Momentum(momentum), server_rate, parts)


@recipe
@cites("reddi2021adaptive")
def fedadam(
    rate: Rate, server_rate: ArrayLike = 0.1, b1: ArrayLike = 0.9, b2: ArrayLike = 0.99, eps: ArrayLike = 1e-3,
    **parts: Unpack[Parts],
) -> Algorithm:  # fmt: skip
    """FedAdam: the server uses the mean update as a gradient for Adam. Reddi et al. 2021, Algorithm 2.

    With a fixed server_rate it may circle around the point at about that distance; a larger eps damps this. Differs
    from the paper: moments are bias-corrected.

    Example:

        import performative as pf

        print(pf.fedadam(0.1).aggregator)
    """
    return _served("fedadam", rate, Adam(b1, b2, eps), server_rate, parts)


@recipe
@cites("reddi2021adaptive", "zaheer2018adaptive")
def fedyogi(
    rate: Rate, server_rate: ArrayLike = 0.1, b1: ArrayLike = 0.9, b2: ArrayLike = 0.99, eps: ArrayLike = 1e-3,
    **parts: Unpack[Parts],
) -> Algorithm:  # fmt: skip
    """FedYogi: like `fedadam`, with a second moment that decays no faster than the updates. Reddi et al. 2021.

    Example:

        import performative as pf

        print(pf.fedyogi(0.1).aggregator)
    """
    return _served("fedyogi", rate, Yogi(b1, b2, eps), server_rate, parts)


@recipe
@cites("li2020fair")
def qffl(rate: Rate, q: ArrayLike, lipschitz: ArrayLike | None = None, **parts: Unpack[Parts]) -> Algorithm:
    """q-FFL: clients are weighted by the q-th power of their loss (`QFair`). Li, Sanjabi, Beirami and Smith 2020.

    It converges where sum_i p_i F_i^q grad F_i = 0 at fixed data: the fair counterpart of the stable point.

    Example:

        import performative as pf

        print(pf.qffl(0.1, q=2.0).aggregator)
    """
    inside = wrapped(parts, "estimator", WithLoss)
    return combine("qffl", rate, {"aggregator": QFair(q, lipschitz)}, inside)


@recipe
@cites("mohri2019agnostic")
def afl(rate: Rate, step: ArrayLike = 0.1, **parts: Unpack[Parts]) -> Algorithm:
    """AFL: the model for the worst mixture of clients, whose weights climb by `step` times their losses (`Agnostic`).

    Mohri, Sivek and Suresh 2019, with E = 1 and full participation.

    Example:

        import performative as pf

        print(pf.afl(0.1).aggregator)
    """
    return combine("afl", rate, {"aggregator": Agnostic(step)}, wrapped(parts, "estimator", WithLoss))


def _served(name: str, rate: Rate, optimizer: AbstractOptimizer, server_rate: ArrayLike, parts: Parts) -> Algorithm:
    """Use the mean update as a gradient for the server's optimizer."""
    check_number(name, server_rate=server_rate)
    check_rule(name, "must not be negative", server_rate=server_rate)
    inside = wrapped(parts, "aggregator", lambda inner: ServerOpt(inner, optimizer, server_rate))
    return combine(name, rate, {}, inside)

"""The papers' algorithms, each a short combination of parts. Every slot can be replaced by keyword."""

from typing import Unpack

import numpy as np

from performative._base.messages import warn
from performative.aggregators import AbstractAggregator, ClusterVarp, Extrapolate, Nova, PooledJacobian, Scaffold, Varp
from performative.algorithm import Algorithm, Parts
from performative.estimators import (
    AbstractEstimator,
    AdaptiveSize,
    Clipped,
    ControlVariate,
    Dice,
    Filtered,
    Performative,
    Prox,
)
from performative.facts import chain, cites
from performative.recipes.making import central, combine, recipe, wrapped
from performative.schedules import Rate
from performative.types import ArrayLike


@recipe
@cites("jin2024performative", "perdomo2020performative")
def p_fedavg(rate: Rate, **parts: Unpack[Parts]) -> Algorithm:
    """P-FedAvg: E local steps on data that react, then the mean of updates. Converges to the stable point.

    Jin et al. 2024, Section 2.4.
    """
    return combine("p_fedavg", rate, {}, parts)


@recipe
@cites("mcmahan2017communication")
def fedavg(rate: Rate, **parts: Unpack[Parts]) -> Algorithm:
    """FedAvg as a static learner: data are always those induced by the first model.

    All data come from D(theta_0), so it converges to the minimizer of that risk: the baseline that ignores the shift.
    McMahan et al. 2017.
    """
    return combine("fedavg", rate, {"deploy": "never"}, parts)


@recipe
@cites("li2022multiagent", "perdomo2020performative")
def multi_agent_pp(rate: Rate, **parts: Unpack[Parts]) -> Algorithm:
    """Multi-agent performative prediction on a complete graph: P-FedAvg with E = 1 and full participation.

    Li, Yau and Wai 2022.
    """
    return combine("multi_agent_pp", rate, central("multi_agent_pp", parts), parts)


@recipe
@cites("izzo2021learn", "miller2021outside", "perdomo2020performative")
def pg(rate: Rate, window: int, **parts: Unpack[Parts]) -> Algorithm:
    """PerfGD as a central learner: one df/dtheta for all clients, E = 1, full participation.

    `problem.pooled()` pools the data into one client, as in Izzo, Ying and Zou 2021. In a federation the server
    estimates the common df/dtheta. It reaches the optimal point if all clients react in the same way; otherwise it
    stops short of it: use `pofl` then.
    """
    own = {"estimator": Performative(window), "aggregator": PooledJacobian(memory=window, alike=True)}
    return combine("pg", rate, own | central("pg", parts), parts)


@recipe
@cites("zheng2024profl", "perdomo2020performative")
def pofl(rate: Rate, window: int, **parts: Unpack[Parts]) -> Algorithm:
    """POFL: every client steps along its own performative gradient. Reaches the optimal point on clean data.

    `window` is H, the number of past models that df/dtheta is estimated from. Zheng et al. 2024, Algorithm 2.
    """
    return _told(combine("pofl", rate, {"estimator": Performative(window)}, parts))


@recipe
@cites("zheng2024profl", "perdomo2020performative")
def profl(rate: Rate, window: int, tolerance: ArrayLike | None = None, **parts: Unpack[Parts]) -> Algorithm:
    """PROFL: POFL on contaminated data, with each client filtering out outlier gradients.

    With `tolerance`, the allowed expected squared error, clients draw only as many samples as it requires.
    For small samples, let clients estimate df/dtheta from all their past: `aggregator=pf.aggregators.PooledJacobian()`.
    Zheng et al. 2024, Algorithm 1.
    """
    estimator: AbstractEstimator = Filtered(Performative(window))
    if tolerance is not None:
        estimator = AdaptiveSize(estimator, tolerance)
    return _told(combine("profl", rate, {"estimator": estimator}, parts))


@recipe
@cites("li2024clipped", "perdomo2020performative")
def pcsgd(rate: Rate, clip: ArrayLike, noise_multiplier: ArrayLike, **parts: Unpack[Parts]) -> Algorithm:
    """PCSGD: per-sample gradients are clipped, noise is added, and the model is projected onto the problem's domain.

    Clipping biases the point that it converges to. Li, Yemini and Wai 2024, Eq. (9); their gamma_{t+1} is rate(t).
    """
    return combine("pcsgd", rate, {"estimator": Clipped(clip, noise_multiplier)}, parts)


@recipe
@cites("li2024clipped", "perdomo2020performative")
def dicesgd(
    rate: Rate, clip: ArrayLike, memory_clip: ArrayLike, noise_multiplier: ArrayLike, **parts: Unpack[Parts]
) -> Algorithm:
    """DiceSGD: PCSGD with an error memory, which removes the clipping bias. Its privacy costs far more.

    Li, Yemini and Wai 2024, Algorithm 1, which has no domain.
    """
    private = Dice(clip=clip, memory_clip=memory_clip, noise_multiplier=noise_multiplier)
    return combine("dicesgd", rate, {"estimator": private}, parts)


@recipe
@cites("li2020fedprox")
def fedprox(rate: Rate, mu: ArrayLike, **parts: Unpack[Parts]) -> Algorithm:
    """FedProx: local steps with a proximal pull towards the server's model. Li et al. 2020."""
    return combine("fedprox", rate, {}, wrapped(parts, "estimator", lambda inner: Prox(inner, mu)))


@recipe
@cites("karimireddy2020scaffold")
def scaffold(rate: Rate, **parts: Unpack[Parts]) -> Algorithm:
    """SCAFFOLD: each client corrects for its difference from the average. Karimireddy et al. 2020.

    With `estimator=pf.estimators.Performative(window)` the performative gradient is corrected: it converges to the
    optimal point, however many local steps clients take.
    """
    inside = wrapped(parts, "estimator", ControlVariate)
    return combine("scaffold", rate, {"aggregator": Scaffold()}, inside)


@recipe
@cites("wang2020tackling")
def fednova(rate: Rate, **parts: Unpack[Parts]) -> Algorithm:
    """FedNova: updates are normalized by the number of local steps if clients do unequal work. Wang et al. 2020."""
    return combine("fednova", rate, {}, wrapped(parts, "aggregator", Nova))


@recipe
@cites("jhunjhunwala2023fedexp")
def fedexp(rate: Rate, cap: ArrayLike | None = None, **parts: Unpack[Parts]) -> Algorithm:
    """FedExP: the server steps farther the less clients agree, at most `cap` times as far. Jhunjhunwala et al. 2023."""
    return combine("fedexp", rate, {}, wrapped(parts, "aggregator", lambda inner: Extrapolate(inner, cap=cap)))


@recipe
@cites("jhunjhunwala2022fedvarp")
def fedvarp(rate: Rate, **parts: Unpack[Parts]) -> Algorithm:
    """FedVARP: the last known update substitutes for absent clients. Jhunjhunwala et al. 2022."""
    return combine("fedvarp", rate, {"aggregator": Varp()}, parts)


@recipe
@cites("jhunjhunwala2022fedvarp")
def cluster_fedvarp(rate: Rate, clusters: ArrayLike, **parts: Unpack[Parts]) -> Algorithm:
    """ClusterFedVARP: one stored update per cluster of clients. Jhunjhunwala et al. 2022."""
    return combine("cluster_fedvarp", rate, {"aggregator": ClusterVarp(clusters)}, parts)


def _told(algorithm: Algorithm) -> Algorithm:
    """Return the algorithm, after a warning if clients that do more local steps would count for more."""
    evened = any(part.evens_work for part in chain(algorithm.aggregator, AbstractAggregator))
    work = algorithm.participation.steps_of(1, algorithm.local_steps)
    if not evened and work is not None and len(np.unique(work)) > 1:
        warn(
            "unequal-work",
            f"{algorithm.name}: clients that take more local steps count for more, so it converges to the optimal "
            "point for other weights. Use aggregator=pf.aggregators.Nova().",
        )
    return algorithm

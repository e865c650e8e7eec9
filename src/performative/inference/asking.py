"""`confidence`: chooses the method and states its caveats."""

from typing import Any

import jax
import numpy as np

from performative._base.arguments import checked
from performative._base.messages import coded
from performative.algorithm import Algorithm
from performative.facts import chain, cites, declared
from performative.history import History
from performative.inference.alone import (
    Shape,
    alone,
    check_level,
    check_method,
    for_all,
    settled_rows,
    spread_of,
    told,
)
from performative.inference.autoregression import autoregression
from performative.inference.cautions import doubts_of
from performative.inference.outcome import Confidence, Spread, intervals
from performative.inference.plug_in import check_same, plug_in, unknown
from performative.inference.quantities import risk_and_gap
from performative.inference.series import kept_records, rows_of
from performative.populations import AbstractPopulation
from performative.problem import Problem
from performative.types import as_numbers

# The most repeats, and records of each, that are checked for the boundary of a domain.
_LOOKS = 100


@cites("polyak1992acceleration", "chen2020statistical")
@checked
def confidence(
    history: Any,
    level: float = 0.95,
    problem: Problem | None = None,
    algorithm: Algorithm | None = None,
    *,
    method: str | None = None,
) -> Confidence:
    """Compute confidence intervals for the stable point from one run, for each of its repeats.

    Args:
        history: of `pf.run`, with its models recorded; or the models of retraining, [repeats, deployments + 1, ...] per
            leaf, the start first, each fitted to a finite sample of the data under the one before it
        level: the share of runs whose interval covers the truth, for each number separately
        problem: the problem of the run: adds intervals for the risk at the stable point and its gap to the optimal one
        algorithm: with `problem`, the algorithm of the run: allows intervals by the plug-in
        method: "plug-in" (averaged iterates with the problem's curvature and noise), "batch means" (of the averaged
            iterates, from their own variation) or "autoregression" (of successive models); None uses the plug-in
            if problem and algorithm are given and it covers them, else batch means; for a sequence of models the
            autoregression

    The estimate is the mean of the models after the first quarter of the run, corrected for its known bias by the
    plug-in. Batch means need only the records, and a constant rate; the plug-in covers decaying rates, short runs,
    local steps, partial participation and unequal weights. Neither accounts for what moves the run away from the
    stable point (clipping, robust rules, overrepresented clients), nor for people who are not those of the problem:
    `Confidence.notes` lists what is known, with a warning.

    If the problem is given, PR and theta_PO are taken from it, and the point itself could be solved for
    (`pf.stable_point`): the interval says what the run alone reveals about it.

    Example:

        import performative as pf

        problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian([0.0, 2.0], [0.3, 0.5], 1.0))
        algorithm = pf.p_fedavg(0.1, participation=pf.SchemeOne(1))
        history = pf.run(problem, algorithm, rounds=4000, theta=0.0)
        print(pf.confidence(history))
        print(pf.confidence(history, 0.95, problem, algorithm))
        print(pf.stable_point(problem))
    """
    check_level(level)
    check_method(method)
    if not isinstance(history, History):
        if method not in (None, "autoregression") or algorithm is not None:
            raise ValueError("confidence: a sequence of models has no algorithm, and its method is 'autoregression'.")
        return _of_models(history, level, problem)
    if algorithm is not None and problem is None:
        raise ValueError("confidence: algorithm needs problem too.")
    if method == "plug-in" and (problem is None or algorithm is None):
        raise ValueError("confidence: method='plug-in' needs problem and algorithm.")
    if problem is None:
        return alone(history, level, method)
    return _of_run(history, level, problem, algorithm, method)


def _of_run(
    history: History, level: float, problem: Problem, algorithm: Algorithm | None, method: str | None
) -> Confidence:
    x, shape = settled_rows(history)
    why = None
    if algorithm is not None and method in (None, "plug-in"):
        check_same(history, problem, algorithm)
        why = unknown(problem, algorithm, x.shape[2])
        if why is not None and method == "plug-in":
            raise ValueError(f"confidence: the plug-in does not support {why}; use method='batch means'.")
    exact = algorithm is not None and method in (None, "plug-in") and why is None
    doubts = _of_people(problem)
    if exact and algorithm is not None:
        first = jax.tree.map(lambda leaf: np.asarray(leaf)[0, 0], history.theta)
        spread = for_all(plug_in(history, problem, algorithm, x, first), history)
    else:
        spread, shape = spread_of(history, method)
    doubts += doubts_of(history, corrected=exact)
    doubts += _at_edge(problem, shape, x[:, kept_records(history.rounds)])
    return _finished(spread, shape, level, problem, doubts)


def _of_models(models: Any, level: float, problem: Problem | None) -> Confidence:
    """Intervals from sequences of retrained models."""
    leaves = [np.asarray(as_numbers(leaf)) for leaf in jax.tree.leaves(models)]
    if not leaves or any(leaf.dtype.kind not in "iuf" or leaf.ndim < 2 for leaf in leaves):
        raise ValueError(
            "confidence: history must be a History, or models of retraining, [repeats, deployments + 1, ...] per leaf "
            f"(models[None] for one sequence); got {type(models).__name__}."
        )
    if len({leaf.shape[:2] for leaf in leaves}) > 1 or not all(np.all(np.isfinite(leaf)) for leaf in leaves):
        raise ValueError("confidence: models of retraining must be finite, with the same number in all leaves.")
    x, shape = rows_of(models)
    doubts = [] if problem is None else [*_of_people(problem), *_at_edge(problem, shape, x[:, 1:])]
    if problem is not None and not declared(problem.loss, "affine_gradient"):
        doubts.append(
            "the interval ignores the bias of each fit on its rows (for a penalty or a nonlinear gradient about one "
            "over their number): coverage is lower for models fitted to few rows."
        )
    return _finished(autoregression(x), shape, level, problem, doubts)


def _finished(spread: Spread, shape: Shape, level: float, problem: Problem | None, doubts: list[str]) -> Confidence:
    notes = (*doubts, *spread.doubts)
    if problem is None:
        return told(intervals(spread, level, shape, notes=notes))
    first = jax.tree.map(lambda leaf: leaf[0], shape(np.nan_to_num(spread.center)))
    risk, gap = risk_and_gap(problem, spread, level, first)
    if gap is None:
        notes += ("no optimal point was found, so there is no gap to it.",)
    return told(intervals(spread, level, shape, risk=risk, gap=gap, notes=notes))


def _of_people(problem: Problem) -> list[str]:
    """Doubts due to the people of a problem; refused if there is nothing to estimate."""
    population = problem.population
    if population.reads_time:
        text = "confidence: the data change by themselves, so there is no fixed stable point; see problem.at(time)."
        raise ValueError(coded("target-moves", text))
    if any(part.infinite_variance for part in chain(population, AbstractPopulation)):
        text = "confidence: samples have infinite variance, so a mean of models has no standard error."
        raise ValueError(coded("no-variance", text))
    if population.clean is not population:
        return [
            "some samples are outliers: the interval is for the stable point of the contaminated data, not of the "
            "people without them."
        ]
    return []


def _at_edge(problem: Problem, shape: Shape, x: np.ndarray) -> list[str]:
    """Whether models [repeats, records, d] lie on the boundary of the domain: a step outward is projected back."""
    domain = problem.domain
    if domain is None:
        return []
    some = x[:: max(1, len(x) // _LOOKS), :: max(1, x.shape[1] // _LOOKS)].reshape(-1, x.shape[2])
    away = jax.tree.map(np.float32, shape(some + 1e-3 * (some - some.mean(axis=0))))
    back = jax.vmap(domain.project)(away)
    moved = [
        np.abs(a - b).reshape(len(some), -1).max(axis=1) > 0
        for a, b in zip(*map(jax.tree.leaves, (away, back)), strict=True)
    ]
    share = float(np.mean(np.any(moved, axis=0)))
    if share == 0:
        return []
    return [f"{100 * share:.2g}% of models lie on the boundary of the domain, which biases their mean inward."]

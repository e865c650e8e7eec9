"""From costs and targets to a setting."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from performative import recipes
from performative._base.arguments import Count, Positive, checked
from performative._base.checks import nearest
from performative.facts import relying
from performative.plan.choices import BATCHES, LOCAL_STEPS, cohorts, settings
from performative.plan.closer import Look, look_closely
from performative.plan.cost import Cost
from performative.plan.following import Tracking
from performative.plan.law import Laws
from performative.plan.near import Near, look_around
from performative.plan.outcome import Option, Plan, one_of_each
from performative.plan.pilots import Trial
from performative.plan.private import private_options
from performative.plan.settings import LocalMaps, Recipe, rounds_to
from performative.plan.tracking import track
from performative.privacy.promise import Privacy
from performative.problem import Problem
from performative.types import Theta

# Step sizes of each kind that are kept.
_RATES = 3
# How much longer than the fastest so far a setting may take before the search drops it.
_SLOWER = 3.0
# The longest run considered.
_ROUNDS = 2.0**22


@checked
def plan(
    problem: Problem,
    cost: Cost,
    accuracy: Positive,
    *,
    recipe: str | Recipe = "p_fedavg",
    theta: Theta = None,
    deploy: str = "step",
    privacy: Privacy | None = None,
    clip: float | None = None,
    local_steps: Sequence[Count] = LOCAL_STEPS,
    batches: Sequence[Count] = BATCHES,
    pilots: bool = True,
    seed: int = 0,
) -> Plan | Tracking:
    """Find the setting of a recipe that comes within `accuracy` of the stable point in the least time.

    Args:
        cost: the time of steps, samples, communication and stragglers
        accuracy: the target root mean square of |theta - theta_PS|, in units of theta
        recipe: the name of a built-in recipe, such as "fedvarp", or a function of (rate, local_steps=, batch=,
            participation=, deploy=) that returns an `Algorithm`
        theta: where learning starts, as in `run`
        deploy: "step" or "round"
        privacy: pf.Privacy(delta, epsilon): each person is protected by clipping and noise, calibrated to the length of
            the run, with full participation. If `accuracy` is out of reach, the plan says how close you can get
        clip: for `privacy`; None uses a norm that nearly all gradients stay below
        local_steps, batches: the candidates for E and for the samples per step
        pilots: whether to try the best settings in short runs if their moments are not exact

    All settings are first ranked by how P-FedAvg would do in the problem's linear model at the stable point; this only
    decides which are examined. The best are then followed by the recipe's own moments, as in `pf.moments`; for a
    nonlinear problem these are the moments of its linear model, and pilot runs test the prediction. The fastest is
    chosen.

    If the data drift (`pf.populations.Drifting`), no setting converges to a point, and the result is a `Tracking`: the
    constant step and the batch that track the moving stable point most closely, with E = 1 and full participation, and
    the best retraining for comparison. This is supported only if it is known exactly: a level that eventually moves in
    a straight line, with the squared loss or prices, no memory and no domain. `accuracy` then refers to the long run at
    the start of rounds, and times of `cost` are in the units of the path.
    """
    if deploy not in ("step", "round"):
        raise ValueError(f'plan: deploy must be "step" or "round"; got {deploy!r}.')
    recipe = _recipe(recipe)
    if not local_steps or not batches:
        raise ValueError("plan: local_steps and batches must each contain at least one candidate.")
    cost.check(problem.clients)
    plain = recipe is recipes.p_fedavg
    if not plain and (privacy is not None or problem.population.reads_time):
        what = "privacy=" if privacy is not None else "drifting data"
        raise ValueError(f'plan: {what} can be planned only for recipe="p_fedavg".')
    if problem.population.reads_time:
        _check_tracked(privacy, clip, local_steps)
        return track(problem, cost, accuracy, theta, batches)
    near = look_around(problem, theta)
    if not near.kappa > 0:
        raise ValueError(
            f"plan: small steps do not settle at the stable point (the slope there is {near.kappa:.3g}): no setting "
            "of P-FedAvg will. pf.certify(problem) gives the details."
        )
    if near.distance <= accuracy:
        raise ValueError(
            f"plan: the start is already {near.distance:.3g} from the stable point, within accuracy = {accuracy:g}; "
            "use a smaller accuracy, or another theta."
        )
    if privacy is not None:
        return private_options(problem, near, cost, accuracy, privacy, clip, local_steps, batches, deploy)
    ranked = _rank(near, cost, accuracy, local_steps, batches, deploy)
    if not ranked:
        raise ValueError(
            f"plan: no setting reaches accuracy = {accuracy:g}; allow larger batches or more local steps, or a "
            "larger accuracy."
        )
    with relying() as heard:
        look = Look(problem, near, cost, accuracy, recipe, theta, deploy, pilots, seed)
        most = max(option.setting.local_steps for option in ranked)
        look.laws = Laws(problem, recipe, theta, near.stable, deploy, cost.latency, look.is_exact, most)
        if not (plain and look.is_exact):
            ranked = one_of_each(ranked)
        ranked, method, trial, untried = look_closely(look, ranked)
    ranked = one_of_each(ranked)
    word = (f"Exact on the author's word: {', '.join(heard)}.",) if heard and method.startswith("exact") else ()
    return Plan(
        accuracy, near.distance, ranked[0], ranked[1] if len(ranked) > 1 else None, tuple(ranked), method,
        ranked[0].setting.algorithm(cost.latency, deploy, recipe), cost, near.clients,
        reached=None if trial is None else trial.error, notes=(*word, *_notes(near, method, trial, untried)),
    )  # fmt: skip


def _recipe(recipe: str | Recipe) -> Recipe:
    """Look up a built-in recipe by name."""
    if callable(recipe):
        return recipe
    if recipe not in recipes.__all__:
        raise ValueError(f"plan: unknown recipe {recipe!r}.{nearest(recipe, recipes.__all__)}")
    return getattr(recipes, recipe)


def _check_tracked(privacy: Privacy | None, clip: float | None, local_steps: Sequence[int]) -> None:
    """Raise for options that are not supported with drifting data."""
    if privacy is not None or clip is not None:
        raise ValueError(
            "plan: privacy= and clip= are not supported if the data drift: tracking never ends, and neither would the "
            "privacy spending. plan(problem.at(time), ..., privacy=...) plans for the data at one time."
        )
    if 1 not in local_steps:
        raise ValueError(
            f"plan: if the data drift, only E = 1 is supported; got local_steps = {tuple(local_steps)}. Include 1."
        )


def _notes(near: Near, method: str, trial: Trial | None, untried: int) -> tuple[str, ...]:
    """What the prediction relies on, if it is not exact."""
    others = (
        "The linear model predicts that another setting is faster; it was not tried."
        if untried == 1
        else f"The linear model predicts that {untried} other settings are faster; they were not tried."
    )
    more = (others,) if untried else ()
    if method.startswith("exact"):
        return more
    if trial is not None and trial.repeats:
        tried = (
            f"After that many rounds the error was {trial.error:.3g} ± {trial.spread:.2g} (standard error) in "
            f"{trial.repeats} pilot run{'s' if trial.repeats > 1 else ''}."
        )
        return (tried, *more)
    said = "No run has tested this: the linear model at the stable point is exact only for quadratic problems."
    missing = []
    if near.remembers:
        missing.append(
            "The data remember past models; the linear model treats them as settled, so its times are too short."
        )
    if near.travel > 0:
        missing.append("The stable point lies on the boundary of the domain; the time to reach it is a rough estimate.")
    return (said, *missing)


def _rank(
    near: Near, cost: Cost, accuracy: float, local_steps: Sequence[int], batches: Sequence[int], deploy: str
) -> list[Option]:
    """The best step sizes for each combination, the fastest first.

    More than one, since the linear model counts to the first round within the accuracy, and a run may leave it again.
    """
    best: dict[Any, list[Option]] = {}
    times: dict[Any, float] = {}
    biased = cost.latency is not None and any(np.ndim(v) for v in vars(cost.latency).values())
    who = [w for w in cohorts(near.clients, cost.latency is not None) if not (biased and w[0] == "first")]
    fastest = math.inf
    maps = LocalMaps(near, deploy)
    for setting in settings(maps, local_steps, batches, who):
        E, k = setting.local_steps, setting.k or near.clients
        kind = setting.kind
        if kind not in times:
            times[kind] = cost.round_time(setting.scheme, k, E, setting.batch, near.weights)
        each = times[kind]
        known = best.setdefault(kind, [])
        limit = min(_SLOWER * fastest, known[-1].time if len(known) == _RATES else math.inf) / each
        rounds = rounds_to(maps, setting, accuracy, min(limit, _ROUNDS))
        if math.isfinite(rounds):
            here = Option(setting, rounds, rounds * each, each)
            best[kind] = sorted([*known, here], key=lambda option: option.time)[:_RATES]
            fastest = min(fastest, rounds * each)
    return sorted((option for options in best.values() for option in options), key=lambda option: option.time)

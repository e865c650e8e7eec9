"""From costs and targets to a setting."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from performative._base.arguments import Count, Positive, checked
from performative.facts import relying
from performative.plan.choices import BATCHES, LOCAL_STEPS, cohorts, settings
from performative.plan.cost import Cost
from performative.plan.following import Tracking
from performative.plan.near import Near, look_around
from performative.plan.outcome import Option, Plan, one_of_each
from performative.plan.pilots import Trial, last_exit, pilot
from performative.plan.private import private_options
from performative.plan.recursion import errors, has_moments, is_exact
from performative.plan.settings import LocalMaps, rounds_to
from performative.plan.tracking import track
from performative.privacy.promise import Privacy
from performative.problem import Problem
from performative.types import Theta

# Settings that are looked at more closely: in pilot runs, no two of the same kind, or by the exact recursion.
_PILOTS, _EXACT = 6, 120
# Lengths of step of each kind that are.
_RATES = 3
# How much longer than the fastest so far a setting may take before the search leaves it.
_SLOWER = 3.0
# The longest run that is thought of.
_ROUNDS = 2.0**22


@checked
def plan(
    problem: Problem,
    cost: Cost,
    accuracy: Positive,
    *,
    theta: Theta = None,
    deploy: str = "step",
    privacy: Privacy | None = None,
    clip: float | None = None,
    local_steps: Sequence[Count] = LOCAL_STEPS,
    batches: Sequence[Count] = BATCHES,
    pilots: bool = True,
    seed: int = 0,
) -> Plan | Tracking:
    """The setting of P-FedAvg that comes within `accuracy` of the stable point in the least time.

    Args:
        cost: what steps, samples, exchanges and stragglers take
        accuracy: the root mean square of |theta - theta_PS| that is wanted, in units of theta
        theta: where learning starts, as in `run`
        deploy: "step" or "round"
        privacy: pf.Privacy(delta, epsilon): each person is protected by clipping and noise, calibrated to the length of
            the run; everyone takes part then. Where `accuracy` is out of reach the plan says how close one gets
        clip: for `privacy`; None takes a size that nearly all gradients keep to
        local_steps, batches: what to choose E and the samples a step from
        pilots: whether the best settings are tried in short runs where no exact recursion is known

    All settings are ranked by the moments of the problem's linear model at the stable point; the best of different
    kinds are then followed exactly (places that follow the model linearly, with the squared loss or prices) or in pilot
    runs, and the fastest is chosen. Far from the stable point the ranking is as good as the linear model is.

    Where the data drift (`pf.populations.Drifting`) no setting ends at a point, and the answer is a `Tracking`: the
    constant step and the batch that follow the moving stable point most closely, E = 1 and everyone taking part, and
    the best retraining beside it. Only where that is known exactly: a level that moves in a straight line in the end,
    with the squared loss or prices, no memory and no domain. `accuracy` is then that of the long run, as rounds begin,
    and times of `cost` are in the units of the path.
    """
    if deploy not in ("step", "round"):
        raise ValueError(f'plan: deploy must be "step" or "round"; got {deploy!r}.')
    if not local_steps or not batches:
        raise ValueError("plan: local_steps and batches must each hold at least one number to choose from.")
    cost.check(problem.clients)
    if problem.population.reads_time:
        _check_tracked(privacy, clip, local_steps)
        return track(problem, cost, accuracy, theta, batches)
    near = look_around(problem, theta)
    if not near.kappa > 0:
        raise ValueError(
            f"plan: small steps do not settle at the stable point (the slope there is {near.kappa:.3g}): no setting "
            "of P-FedAvg will. pf.certify(problem) says more."
        )
    if near.distance <= accuracy:
        raise ValueError(
            f"plan: the start is already {near.distance:.3g} from the stable point, within accuracy = {accuracy:g}; "
            "ask for more, or give another theta."
        )
    if privacy is not None:
        return private_options(problem, near, cost, accuracy, privacy, clip, local_steps, batches, deploy)
    ranked = _rank(near, cost, accuracy, local_steps, batches, deploy)
    if not ranked:
        raise ValueError(
            f"plan: no setting comes within accuracy = {accuracy:g}; allow larger batches or more local steps, or a "
            "larger accuracy."
        )
    with relying() as heard:
        if not has_moments(problem):
            ranked = one_of_each(ranked)
        ranked, method, trial, untried = _look_closely(
            problem, near, cost, accuracy, ranked, theta, deploy, pilots, seed
        )
    ranked = one_of_each(ranked)
    word = (f"Exact on the author's word: {', '.join(heard)}.",) if heard and method == "exact recursion" else ()
    return Plan(
        accuracy, near.distance, ranked[0], ranked[1] if len(ranked) > 1 else None, tuple(ranked), method,
        ranked[0].setting.algorithm(cost.latency, deploy), cost, near.clients,
        reached=None if trial is None else trial.error, notes=(*word, *_notes(near, method, trial, untried)),
    )  # fmt: skip


def _check_tracked(privacy: Privacy | None, clip: float | None, local_steps: Sequence[int]) -> None:
    """Refuse what is not known of data that drift."""
    if privacy is not None or clip is not None:
        raise ValueError(
            "plan: privacy= and clip= are not planned where the data drift: following them never ends, nor would the "
            "spending. plan(problem.at(time), ..., privacy=...) plans for the data of one time."
        )
    if 1 not in local_steps:
        raise ValueError(
            f"plan: where the data drift, E = 1 alone is planned, and local_steps = {tuple(local_steps)} leaves it out."
        )


def _notes(near: Near, method: str, trial: Trial | None, untried: int) -> tuple[str, ...]:
    """What the prediction rests on, where that is less than exact."""
    others = f"The linear model holds {untried} more for faster than that; they were not tried."
    more = (others,) if untried else ()
    if method == "exact recursion":
        return more
    if trial is not None and trial.repeats:
        tried = (
            f"After so many rounds the error was {trial.error:.3g} ± {trial.spread:.2g} (standard error) in "
            f"{trial.repeats} pilot run{'s' if trial.repeats > 1 else ''}."
        )
        return (tried, *more)
    said = "No run has tried this: the linear model at the stable point is exact for quadratic problems only."
    missing = []
    if near.remembers:
        missing.append(
            "The data remember past models; the linear model takes them for settled, so its times are short."
        )
    if near.travel > 0:
        missing.append("The stable point lies on the edge of the domain; the way there is a rough guess.")
    return (said, *missing)


def _rank(
    near: Near, cost: Cost, accuracy: float, local_steps: Sequence[int], batches: Sequence[int], deploy: str
) -> list[Option]:
    """The best lengths of step for each combination, the fastest first.

    More than one, since the linear model counts up to the first round within the accuracy: a rate may leave it again.
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


def _look_closely(
    problem: Problem, near: Near, cost: Cost, accuracy: float, ranked: list[Option], theta: Theta, deploy: str,
    pilots: bool, seed: int,
) -> tuple[list[Option], str, Trial | None, int]:  # fmt: skip
    """The leading settings with the time that they really take, until no other is predicted to be faster.

    Also how the fastest was looked at, what came of it, and how many that are predicted to be faster were not tried.
    """
    seen: list[tuple[Option, Trial]] = []
    for number, option in enumerate(ranked):
        exact = is_exact(problem, near, option.setting, option.rounds)
        if number == _EXACT or (not exact and (not pilots or sum(t.repeats > 0 for _, t in seen) == _PILOTS)):
            break
        if len(seen) > 1 and min(o.time for o, _ in seen) <= option.time:
            break
        if exact:
            trial = _follow(near, option, accuracy, deploy)
        else:
            trial = pilot(
                problem, option.setting, theta, near.stable, accuracy, option.rounds, deploy, cost.latency, seed
            )
        seen.append((dataclasses.replace(option, rounds=trial.rounds, time=trial.rounds * option.round_time), trial))
    if not seen:
        return ranked, "linear model", None, 0
    found = sorted((pair for pair in seen if math.isfinite(pair[0].time)), key=lambda pair: pair[0].time)
    if not found:
        raise ValueError(
            f"plan: none of the {len(seen)} best settings came within accuracy = {accuracy:g} in a pilot run: this far "
            "from the stable point the linear model misleads. Ask for another accuracy, or start nearer (theta)."
        )
    best, trial = found[0]
    rest = [option for option in ranked[len(seen) :] if option.time >= best.time]
    later = sorted([*(option for option, _ in found[1:]), *rest], key=lambda o: o.time)
    untried = len(ranked) - len(seen) - len(rest)
    return [best, *later], "pilot runs" if trial.repeats else "exact recursion", trial, untried


def _follow(near: Near, option: Option, accuracy: float, deploy: str) -> Trial:
    """By the exact recursion: the rounds after which the error stays at or below `accuracy`."""
    count = math.ceil(1.5 * option.rounds) + 2
    error = errors(near, option.setting, count, deploy)
    needed = last_exit(error, np.arange(count + 1), accuracy)
    return Trial(needed, float(error[int(needed)]) if math.isfinite(needed) else math.inf)

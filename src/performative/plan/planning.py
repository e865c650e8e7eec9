"""From costs and targets to a setting."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from performative.errors import check_counts
from performative.plan.choices import BATCHES, LOCAL_STEPS, cohorts, settings
from performative.plan.cost import Cost
from performative.plan.near import Near, look_around
from performative.plan.outcome import Option, Plan
from performative.plan.pilots import exact_rounds, is_exact, pilot_rounds
from performative.plan.private import private_options
from performative.plan.settings import LocalMaps, rounds_to
from performative.privacy.promise import Privacy
from performative.problem import Problem

# Settings that are looked at more closely, no two of the same kind: in pilot runs, or by the exact recursion.
_PILOTS, _EXACT = 6, 60
# How much longer than the fastest so far a setting may take before the search leaves it.
_SLOWER = 3.0
# The longest run that is thought of.
_ROUNDS = 2.0**22


def plan(
    problem: Problem,
    cost: Cost,
    accuracy: float,
    *,
    theta: Any = None,
    deploy: str = "step",
    privacy: Privacy | None = None,
    clip: float | None = None,
    local_steps: Sequence[int] = LOCAL_STEPS,
    batches: Sequence[int] = BATCHES,
    pilots: bool = True,
    seed: int = 0,
) -> Plan:
    """The setting of P-FedAvg that comes within `accuracy` of the stable point in the least time.

    cost:        what steps, samples, exchanges and stragglers take
    accuracy:    the root mean square of |theta - theta_PS| that is wanted, in units of theta
    theta:       where learning starts, as in `run`
    deploy:      "step" or "round"
    privacy:     pf.Privacy(delta, epsilon): each person is protected by clipping and noise, calibrated to the length
                 of the run; everyone takes part then. Where `accuracy` is out of reach the plan says how close one gets
    clip:        for `privacy`; None takes a size that nearly all gradients keep to
    local_steps, batches: what to choose E and the samples a step from
    pilots:      whether the best settings are tried in short runs where no exact recursion is known

    All settings are ranked by the moments of the problem's linear model at the stable point; the best of different
    kinds are then followed exactly (Gaussian data, squared loss) or in pilot runs, and the fastest is chosen. Far
    from the stable point the ranking is as good as the linear model is.
    """
    if not (isinstance(accuracy, (int, float, np.number)) and math.isfinite(accuracy) and accuracy > 0):
        raise ValueError(f"plan: accuracy must be a positive distance to the stable point; got {accuracy!r}.")
    if deploy not in ("step", "round"):
        raise ValueError(f'plan: deploy must be "step" or "round"; got {deploy!r}.')
    if not isinstance(cost, Cost):
        raise ValueError(f"plan: cost must be pf.Cost(step, sample, communication, latency); got {cost!r}.")
    if not local_steps or not batches:
        raise ValueError("plan: local_steps and batches must each hold at least one number to choose from.")
    accuracy = float(accuracy)
    for E in local_steps:
        check_counts(local_steps=E)
    for n in batches:
        check_counts(batches=n)
    cost.check(problem.clients)
    near = look_around(problem, theta)
    if not near.kappa > 0:
        raise ValueError(
            f"plan: small steps do not settle at the stable point (the slope there is {near.kappa:.3g}): no setting "
            "of P-FedAvg will. pf.certify(problem) says more."
        )
    if float(np.linalg.norm(near.start)) <= accuracy:
        raise ValueError(
            f"plan: the start is already {np.linalg.norm(near.start):.3g} from the stable point, within accuracy = "
            f"{accuracy:g}; ask for more, or give another theta."
        )
    if privacy is not None:
        return private_options(problem, near, cost, accuracy, privacy, clip, local_steps, batches, deploy)
    ranked = _rank(near, cost, accuracy, local_steps, batches, deploy)
    if not ranked:
        raise ValueError(
            f"plan: no setting comes within accuracy = {accuracy:g}; allow larger batches or more local steps, or a "
            "larger accuracy."
        )
    ranked, method = _look_closely(problem, near, cost, accuracy, ranked, theta, deploy, pilots, seed)
    return Plan(
        accuracy, float(np.linalg.norm(near.start)), ranked[0], ranked[1] if len(ranked) > 1 else None,
        tuple(ranked), method, ranked[0].setting.algorithm(cost.latency, deploy), cost, near.clients,
    )  # fmt: skip


def _rank(
    near: Near, cost: Cost, accuracy: float, local_steps: Sequence[int], batches: Sequence[int], deploy: str
) -> list[Option]:
    """The best length of step for each combination, the fastest combination first."""
    best: dict[Any, Option] = {}
    times: dict[Any, float] = {}
    biased = cost.latency is not None and any(np.ndim(v) for v in vars(cost.latency).values())
    who = [w for w in cohorts(near.clients, cost.latency is not None) if not (biased and w[0] == "first")]
    fastest = math.inf
    maps = LocalMaps(near, deploy)
    for setting in settings(maps, local_steps, batches, who):
        E, k = setting.local_steps, setting.k or near.clients
        kind = (E, setting.scheme, setting.k, setting.batch)
        if kind not in times:
            times[kind] = cost.round_time(setting.scheme, k, E, setting.batch, near.weights)
        each = times[kind]
        limit = min(_SLOWER * fastest, best[kind].time if kind in best else math.inf) / each
        rounds = rounds_to(maps, setting, accuracy, min(limit, _ROUNDS))
        if math.isfinite(rounds) and (kind not in best or rounds * each < best[kind].time):
            best[kind] = Option(setting, rounds, rounds * each, each)
            fastest = min(fastest, rounds * each)
    return sorted(best.values(), key=lambda option: option.time)


def _look_closely(
    problem: Problem, near: Near, cost: Cost, accuracy: float, ranked: list[Option], theta: Any, deploy: str,
    pilots: bool, seed: int,
) -> tuple[list[Option], str]:  # fmt: skip
    """The leading settings with the time that they really take, until no other is predicted to be faster."""
    if not pilots and not is_exact(problem, ranked[0].setting):
        return ranked, "linear model"
    start = float(near.start[0] + np.ravel(jax.tree.leaves(near.stable)[0])[0])
    seen: list[Option] = []
    trials, exact = 0, True
    for number, option in enumerate(ranked):
        known = is_exact(problem, option.setting)
        if (not known and (not pilots or trials == _PILOTS)) or number == _EXACT:
            break
        if len(seen) > 1 and min(o.time for o in seen) <= option.time:
            break
        if known:
            rounds = exact_rounds(problem, option.setting, start, accuracy, option.rounds, deploy)
        else:
            trials, exact = trials + 1, False
            rounds = pilot_rounds(
                problem, option.setting, theta, near.stable, accuracy, option.rounds, deploy, cost.latency, seed
            )
        seen.append(dataclasses.replace(option, rounds=rounds, time=rounds * option.round_time))
    found = sorted((o for o in seen if math.isfinite(o.time)), key=lambda o: o.time)
    if not found:
        raise ValueError(
            f"plan: none of the {len(seen)} best settings came within accuracy = {accuracy:g} in a pilot run: this far "
            "from the stable point the linear model misleads. Ask for another accuracy, or start nearer (theta)."
        )
    rest = [option for option in ranked[len(seen) :] if option.time >= found[0].time]
    later = sorted([*found[1:], *rest], key=lambda o: o.time)
    return [found[0], *later], "exact recursion" if exact else "pilot runs"

"""Plans that protect each person."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from performative.batches import Uniform
from performative.plan.choices import longest_step
from performative.plan.cost import Cost
from performative.plan.near import Near
from performative.plan.outcome import Option, Plan, one_of_each
from performative.plan.settings import LocalMaps, Setting, round_map
from performative.privacy.promise import Privacy
from performative.problem import Problem

_PARTS = (0.5, 0.2, 0.08, 0.03, 0.012, 0.005, 0.002)
# Lengths of the run in local steps: noise is calibrated to each.
_LENGTHS = (30, 100, 300, 1000, 3000)
# The fraction of per-sample gradients that the clip leaves unchanged.
_KEPT = 0.98
_LOOKED = "pf.plan chose the step size, the batch and the length of the run from these people's data"


def private_options(
    problem: Problem, near: Near, cost: Cost, accuracy: float, privacy: Privacy, clip: float | None,
    local_steps: Sequence[int], batches: Sequence[int], deploy: str,
) -> Plan:  # fmt: skip
    """The fastest setting within accuracy and epsilon; if there is none, the one that comes closest."""
    from performative.privacy.spending import calibrate  # importing the accountant is slow

    rows = _rows(problem)
    if privacy.epsilon is None:
        raise ValueError("plan: privacy must have a budget, as in pf.Privacy(delta, epsilon); got epsilon=None.")
    sizes = [n for n in batches if n <= rows]
    if not sizes:
        raise ValueError(f"plan: a client has {rows} rows; batches must contain a size of at most that; got {batches}.")
    if clip is not None and not (math.isfinite(clip) and clip > 0):
        raise ValueError(f"plan: clip must be a positive gradient norm; got {clip}.")
    if near.travel > 0:
        raise ValueError(
            "plan: with privacy the stable point must lie inside the domain; here it lies on the boundary, where noise "
            "moves it inward by an unknown amount. Compare a few settings with pf.sweep instead."
        )
    bound = float(np.quantile(near.sizes, _KEPT)) if clip is None else float(clip)
    found: list[tuple[float, Option]] = []
    maps = LocalMaps(near, deploy)
    lengths: dict[float, int] = {}
    for n in sizes:
        for length in _LENGTHS:
            noise = calibrate(privacy.epsilon, privacy.delta, length, batch=Uniform(n), rows=rows)
            lengths[noise] = length
            for E in (e for e in local_steps if e <= length):
                longest = longest_step(maps, E)
                each = cost.round_time("full", near.clients, E, n, near.weights)
                for part in _PARTS:
                    setting = Setting(E, "full", None, n, part * longest, noise=noise, clip=bound)
                    rounds, error = _within(maps, setting, accuracy, length // E)
                    found.append((error, Option(setting, rounds, rounds * each, each)))
    good = sorted((o for error, o in found if error <= accuracy), key=lambda o: o.time)
    if good:
        ranked, reached = good, accuracy
    else:
        least = min(error for error, _ in found)
        # Errors equal to within one percent are ordered by time; the rest by error.
        close = sorted((pair for pair in found if pair[0] <= 1.01 * least), key=lambda pair: pair[1].time)
        rest = sorted((pair for pair in found if pair[0] > 1.01 * least), key=lambda pair: pair[0])
        ranked, reached = [option for _, option in (*close, *rest)], close[0][0]
    first = ranked[0].setting
    kinds = one_of_each(ranked)
    origin = (
        "was given."
        if clip is not None
        else f"leaves {_KEPT:.0%} of gradients unchanged, at the start and at theta_PS."
    )
    longer = float(np.mean(near.sizes > bound))
    loud = f"{longer:.0%} OF GRADIENTS ARE LONGER THAN THE CLIP: the error will be larger than predicted."
    notes = (
        *([loud] if longer > 0.1 else []),
        f"Noise multiplier {first.noise:.3g} is calibrated to epsilon = {privacy.epsilon:g} at delta = "
        f"{privacy.delta:g} for {rows} rows per client and {lengths[first.noise]} local steps; a shorter run "
        "spends less.",
        f"The clip, {bound:.3g}, {origin} The prediction ignores how far clipping moves the stable point: see "
        "pf.theory.pcsgd.",
        f"Not covered by epsilon: {_LOOKED}. To avoid this, plan on similar public or synthetic data.",
    )
    return Plan(
        accuracy, near.distance, ranked[0], kinds[1] if len(kinds) > 1 else None,
        tuple(kinds), "linear model",
        dataclasses.replace(first.algorithm(cost.latency, deploy), from_data=(_LOOKED,)),
        cost, near.clients, reached, notes,
    )  # fmt: skip


def _rows(problem: Problem) -> int:
    capacity = problem.population.capacity
    if capacity is None:
        raise ValueError(
            "plan: privacy needs people in a table; this population keeps drawing new ones. Use a population with "
            "rows, such as Database, Strategic or Problem.from_frame."
        )
    rows = problem.population.rows
    return int(np.min(np.asarray(rows))) if not isinstance(rows, int) else rows


def _within(maps: LocalMaps, setting: Setting, accuracy: float, rounds: int) -> tuple[float, float]:
    """The first round within accuracy, or the last one; and the error there."""
    near, here = maps.near, round_map(maps, setting, np.full(setting.local_steps, setting.rate))
    u, S = near.start, np.zeros((near.size, near.size))
    error = float(np.linalg.norm(u))
    for number in range(1, rounds + 1):
        S = here.mean @ S @ here.mean.T + here.spread(u, S)
        u = here.mean @ u + here.shift
        error = math.sqrt(max(float(u @ u + np.trace(S)), 0.0))
        if error <= accuracy:
            return float(number), error
    return float(rounds), error

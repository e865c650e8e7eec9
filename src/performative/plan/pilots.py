"""How long settings actually take, from short runs."""

import dataclasses
import math
import warnings

import numpy as np

from performative._engine.run import run
from performative.callbacks import Progress
from performative.participation.latency import AbstractLatency
from performative.plan.settings import Recipe, Setting
from performative.problem import Problem
from performative.recipes import p_fedavg
from performative.record import Record
from performative.types import Theta

# Largest number of samples that one pilot may draw.
_BUDGET = 2e8
_REPEATS = 32
# How much longer than predicted a pilot runs and its minimum rounds, in successive attempts; and the fraction of the
# error that the second half of a run must leave at most for the next attempt.
_TRIES, _FALLING = ((1.5, 20), (5.0, 100), (15.0, 500)), 0.97


@dataclasses.dataclass(frozen=True)
class Trial:
    """The result of a setting: the rounds it needs (infinite if it never gets there), and the error then.

    Attributes:
        spread: the standard error of that error, over the pilot's repeats; 0 if exact
    """

    rounds: float
    error: float
    spread: float = 0.0
    repeats: int = 0


def pilot(
    problem: Problem, setting: Setting, theta: Theta, stable: Theta, accuracy: float, rounds: float, deploy: str,
    latency: AbstractLatency | None, seed: int, recipe: Recipe = p_fedavg,
) -> Trial:  # fmt: skip
    """Run a few repeats, half as long again as predicted; longer while the error is still decreasing."""
    for stretch, least in _TRIES:
        count = max(math.ceil(stretch * rounds) + 2, least)
        work = (setting.k or problem.clients) * setting.local_steps * setting.batch
        repeats = int(np.clip(_BUDGET / (work * count), 1, _REPEATS))
        with warnings.catch_warnings():
            # Divergence is an answer: such a setting is not chosen.
            warnings.filterwarnings("ignore", message=r".*\[run-diverged\]")
            history = run(
                problem,
                setting.algorithm(latency, deploy, recipe),
                count,
                theta=theta,
                seed=seed,
                repeats=repeats,
                record=Record(stable=stable, risks=False, consensus=False, theta="last", every=max(1, count // 200)),
                callbacks=[Progress(False)],
            )
        if history.status != "completed":
            break
        square = np.square(history["distance_to_stable"])
        error = np.sqrt(np.mean(square, axis=0))
        needed = last_exit(error, history.rounds, accuracy)
        if math.isfinite(needed):
            at = int(np.flatnonzero(history.rounds == needed)[0])
            spread = np.std(square[:, at], ddof=1) / math.sqrt(repeats) if repeats > 1 else math.nan
            # d sqrt(m) = dm / (2 sqrt(m)); an error of 0 has none.
            return Trial(needed, float(error[at]), float(spread / (2 * error[at])) if error[at] > 0 else 0.0, repeats)
        if not error[-1] < _FALLING * error[len(error) // 2]:
            break
    return Trial(math.inf, math.inf, repeats=repeats)


def last_exit(error: np.ndarray, rounds: np.ndarray, accuracy: float) -> float:
    """The first round after which the error stays within a twentieth of `accuracy`; infinite if there is none.

    The first hit would favor a trajectory that oscillates through the point.
    """
    outside = np.flatnonzero(~(error <= 1.05 * accuracy))
    if len(outside) == len(error) or (len(outside) and outside[-1] == len(error) - 1):
        return math.inf
    inside = np.flatnonzero(error <= accuracy)
    settled = outside[-1] + 1 if len(outside) else 0
    later = inside[inside >= settled]
    return float(rounds[later[0]]) if len(later) else math.inf

"""How long settings really take: by the exact recursion where there is one, else by short runs."""

import math
from typing import Any

import numpy as np

from performative.engine.run import run
from performative.losses import squared
from performative.participation.first_k import AbstractLatency
from performative.plan.settings import Setting
from performative.populations import Gaussian
from performative.problem import Problem
from performative.theory.gaussian import gaussian_moments

# Samples that one pilot may draw.
_BUDGET = 2e8
_REPEATS = 32


def is_exact(problem: Problem, setting: Setting) -> bool:
    """Whether the moments of a run are known: Gaussian data, squared loss, one parameter, no domain, no clipping."""
    population: Any = problem.population
    plain = type(population) is Gaussian and problem.loss is squared and problem.domain is None
    return plain and np.ndim(population.mean) <= 1 and setting.scheme != "first" and setting.clip is None


def exact_rounds(
    problem: Problem, setting: Setting, start: float, accuracy: float, rounds: float, deploy: str
) -> float:
    """Rounds after which the exact root mean square error stays at or below `accuracy`."""
    population: Any = problem.population
    count = math.ceil(1.5 * rounds) + 2
    moments = gaussian_moments(
        population.mean, population.sensitivity, population.scale,
        setting.eta(np.arange(count * setting.local_steps)), local_steps=setting.local_steps,
        weights=np.asarray(problem.client_weights), batch=setting.batch, start=start, scheme=setting.scheme,
        k=setting.k, deploy=deploy,
    )  # fmt: skip
    return last_exit(np.sqrt(moments.mse), np.arange(count + 1), accuracy)


def pilot_rounds(
    problem: Problem, setting: Setting, theta: Any, stable: Any, accuracy: float, rounds: float, deploy: str,
    latency: AbstractLatency | None, seed: int,
) -> float:  # fmt: skip
    """The same by a run of a few repeats, half as long again as was predicted."""
    count = math.ceil(1.5 * rounds) + 2
    work = (setting.k or problem.clients) * setting.local_steps * setting.batch
    repeats = int(np.clip(_BUDGET / (work * count), 1, _REPEATS))
    history = run(
        problem, setting.algorithm(latency, deploy), count, theta=theta, seed=seed, repeats=repeats, stable=stable,
        risk=False, consensus=False, record_theta="last", every=max(1, count // 200), progress=False,
    )  # fmt: skip
    if history.status != "completed":
        return math.inf
    error = np.sqrt(np.mean(np.square(history["distance_to_stable"]), axis=0))
    return last_exit(error, history.rounds, accuracy)


def last_exit(error: np.ndarray, rounds: np.ndarray, accuracy: float) -> float:
    """The first round from which on the error stays within a twentieth of `accuracy`; infinite where it does not.

    The first hit would flatter a trajectory that swings through the point.
    """
    outside = np.flatnonzero(~(error <= 1.05 * accuracy))
    if len(outside) == len(error) or (len(outside) and outside[-1] == len(error) - 1):
        return math.inf
    inside = np.flatnonzero(error <= accuracy)
    settled = outside[-1] + 1 if len(outside) else 0
    later = inside[inside >= settled]
    return float(rounds[later[0]]) if len(later) else math.inf

"""`pf.forecast`: the same machine for nonlinear problems, around the point where they settle."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from performative._base.arguments import checked
from performative._base.messages import PerformativeWarning, coded
from performative.algorithm import Algorithm
from performative.moments.building import build
from performative.moments.limits import Limits, limits, mean_limit
from performative.moments.machine import Machine
from performative.moments.outcome import Forecast, Radii
from performative.moments.playing import last_turn
from performative.problem import Problem
from performative.solve import stable_point
from performative.types import Theta

# Newton steps to where runs settle on average, and their stopping tolerance.
_STEPS, _REST = 12, 1e-9
# Directions in which the forecast is tested one standard deviation away, and how much it may then differ.
_TRIES, _VALID = 4, 0.15
# A point closer to the boundary of a domain than this fraction of its size lies on it.
_EDGE = 1e-6
# Warnings of the point search to silence; not that the point repels, since runs may then settle elsewhere.
_NO_MATTER = r".*\[(?!repelling-point\])[a-z-]+\]$"


@checked
def forecast(problem: Problem, algorithm: Algorithm, start: Theta = None) -> Forecast:
    """Predict where a run settles, how fast and with what error, near the stable point of a possibly nonlinear problem.

    Rounds are linearized where they settle on average (which local steps and compression move away from theta_PS), with
    the noise of samples, cohorts and channels there. This is repeated one standard deviation away in each of a few
    directions: if the error would differ by more than 15%, the forecast is not `valid`.

    Args:
        start: where to look for the stable point, as in `pf.stable_point`
    """
    with jax.enable_x64(True):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", _NO_MATTER, PerformativeWarning)
            stable = stable_point(problem, start=start)
        point = np.asarray(ravel_pytree(stable)[0])
        _check_inside(problem, stable, point)
        machine, _, _ = build(problem, algorithm, stable, 1, exact=False)
        x = np.asarray(machine.begin().mean)
        machine, found = _settle(machine, x)
        law = found.law
        error = doubt = None
        if law is not None:
            error = _error(machine, found, point)
            doubt = max(abs(_error(machine, other, point) / error - 1.0) for other in _tried(machine, found))
        return _told(machine, found, stable, error, doubt)


def _check_inside(problem: Problem, stable: Theta, point: np.ndarray) -> None:
    """Raise if the point lies on the boundary of the domain: rounds are not linear there."""
    if problem.domain is None:
        return
    shaped, step = ravel_pytree(stable)[1], _EDGE * (1.0 + np.abs(point).max())
    for near in np.concatenate([point + step * np.eye(len(point)), point - step * np.eye(len(point))]):
        moved = ravel_pytree(problem.domain.project(shaped(jnp.asarray(near))))[0]
        if np.abs(np.asarray(moved) - near).max() > 1e-3 * step:
            name = type(problem.domain).__name__
            text = f"forecast: the stable point is on the boundary of domain={name}: rounds are nonlinear; use pf.run."
            raise ValueError(coded("not-affine", text))


def _settle(machine: Machine, x: np.ndarray) -> tuple[Machine, Limits]:
    """Relinearize where the last linearization settles, until convergence."""
    for _ in range(_STEPS):
        machine = machine.around(x[1:])
        new = mean_limit(last_turn(machine), x)[2]
        if new is None:
            break
        moved, x = np.abs(new - x).max(), new
        if moved <= _REST * (1.0 + np.abs(x).max()):
            break
    return machine, limits(last_turn(machine), x)


def _tried(machine: Machine, found: Limits) -> list[Limits]:
    """What the forecast would be, linearized one standard deviation away."""
    assert found.law is not None
    mean, covariance = np.asarray(found.law.mean), np.asarray(found.law.covariance)
    value, vector = np.linalg.eigh(covariance)
    rng, out = np.random.default_rng(0), []
    for _ in range(_TRIES // 2):
        away = vector @ (np.sqrt(np.maximum(value, 0.0)) * rng.standard_normal(len(value)))
        out += [limits(last_turn(machine.around((mean + side * away)[1:])), mean) for side in (-1.0, 1.0)]
    return out


def _error(machine: Machine, found: Limits, stable: np.ndarray) -> float:
    """E|theta - theta_PS|^2 in the long run; infinite if it does not settle."""
    if found.law is None:
        return float("inf")
    inside = slice(1, 1 + machine.layout.model)
    away = np.asarray(found.law.mean)[inside] - stable
    return float(away @ away + np.trace(np.asarray(found.law.covariance)[inside, inside]))


def _told(machine: Machine, found: Limits, stable: Any, error: float | None, doubt: float | None) -> Forecast:
    inside = slice(1, 1 + machine.layout.model)
    radii = Radii(found.mean_radius, found.second_radius)
    if found.law is None or error is None or doubt is None:
        return Forecast(stable, radii, None, None, None, None, False)
    shaped = ravel_pytree(machine.layout.join(*machine.start, machine.first).theta)[1]
    mean = jax.tree.map(np.asarray, shaped(jnp.asarray(found.law.mean)[inside]))
    covariance = np.asarray(found.law.covariance)[inside, inside]
    return Forecast(stable, radii, mean, covariance, error, doubt, doubt <= _VALID)

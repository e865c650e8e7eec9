"""Data that drift on their own: does the stable point come to rest, and how far behind does training stay?"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from performative._engine.prepare import on_device
from performative.facts import chain, declared
from performative.paths import AbstractPath
from performative.populations import AbstractPopulation
from performative.problem import Problem
from performative.solve.landscape import Landscape
from performative.solve.worlds import remembers

# A speed below this fraction of the magnitude of the numbers involved is roundoff.
_STILL = 1e-10


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class AbstractDrift:
    """What is known about a moving target; see `Certificate`."""

    drifts: bool = False
    still: bool | None = None
    since: float = 0.0
    speed: float = float("nan")
    lag: float = float("nan")
    step_lag: float = float("nan")
    lag_bound: float = float("nan")

    @property
    def moves(self) -> bool:
        """Whether the data change on their own and the stable point is not known to stand still eventually."""
        return self.drifts and self.still is not True


def stop(problem: Problem) -> tuple[Problem, dict[str, Any]]:
    """The problem at the time from which its data stand still or move in a straight line, and what is known so far.

    At time 0 if there is no such time.
    """
    if not problem.population.reads_time:
        return problem, {}
    ends = [path.end() if path is not None else None for path in _paths(problem.population)]
    known = [end for end in ends if end is not None]
    if len(known) < len(ends):
        return problem.at(0.0), {"drifts": True}
    since = max(when for _, when in known)
    still = True if not any(np.any(velocity) for velocity, _ in known) else None
    return problem.at(since), {"drifts": True, "since": since, "still": still}


def outlook(problem: Problem, land: Landscape, stable: np.ndarray | None, known: dict[str, Any]) -> dict[str, Any]:
    """How far behind training stays, if gradients are linear and only the level moves; else nothing new.

        u_{t+1} = M u_t - w,      M = -H^-1 C,      w = theta_PS(t+1) - theta_PS(t)       retraining, one a unit of time
        u_{t+1} = (I - eta J) u_t - w,      J = H + C                                     steps of constant length eta

    On a straight line w is constant, so u tends to -(I - M)^-1 w and -(eta J)^-1 w. On any other path, with the squared
    loss, |u| is at most sup |w| / (1 - |M|) after burn-in.
    """
    if not known or known.get("still") or stable is None or not is_linear(problem, land):
        return known
    J, H = land.equilibrium().slope(stable), land.own_curvature(stable, stable)
    if J is None or np.linalg.cond(J) > 1e12:
        return known
    retrains = np.linalg.cond(H) < 1e12
    M = np.eye(len(J)) - np.linalg.solve(H, J) if retrains else np.full_like(J, np.nan)
    if "still" not in known:  # no straight line
        return known | {"lag_bound": _bound(problem, J, M)}
    later = on_device(problem.at(known["since"] + 1.0), jnp.float64)
    then = dataclasses.replace(land, problem=Problem(later.loss, later.population))
    now, next_ = (one.equilibrium().gradient(stable) for one in (land, then))
    w = -np.linalg.solve(J, next_ - now)
    speed = float(np.linalg.norm(w))
    if speed <= _STILL * (1.0 + float(np.linalg.norm(stable))):
        return known | {"still": True, "speed": 0.0}
    told = {"still": False, "speed": speed, "step_lag": float(np.linalg.norm(np.linalg.solve(J, w)))}
    if retrains and np.abs(np.linalg.eigvals(M)).max() < 1.0:
        told["lag"] = float(np.linalg.norm(np.linalg.solve(np.eye(len(J)) - M, w)))
    return known | told


def _paths(population: AbstractPopulation) -> list[AbstractPath | None]:
    """All paths of a population; None for people who use the time in a custom way."""
    found: list[AbstractPath | None] = []
    for part in chain(population, AbstractPopulation):
        if part.path_of_level is not None:
            found.append(part.path_of_level)
        elif part.reads_time and not any(held.reads_time for held in chain(part, AbstractPopulation)[1:]):
            found.append(None)
    return found


def is_linear(problem: Problem, land: Landscape) -> bool:
    """Whether one path moves the level of data that follow the model linearly and immediately, with linear gradient."""
    people = problem.population
    if people.path_of_level is None or problem.domain is not None or not people.moves_level_alone:
        return False
    groups = declared(people, "translations")
    follows = groups is not None and len(groups) == 1 and not remembers(land.problem, land.like)
    return follows and bool(declared(problem.loss, "affine_gradient"))


def _bound(problem: Problem, J: np.ndarray, M: np.ndarray) -> float:
    """sup |w| / (1 - |M|) for the squared loss, whose gradient moves against the level; NaN if there is none."""
    people = problem.population
    factor = float(np.linalg.norm(M, 2)) if np.all(np.isfinite(M)) else np.inf
    path, curvature = people.path_of_level, declared(problem.loss, "curvature")
    plain = declared(problem.loss, "affine_gradient") and curvature == (1.0, 1.0, 1.0)
    if not plain or factor >= 1.0 or path is None:
        return float("nan")
    step = path.longest_step()
    each = np.linalg.norm(step, axis=1) if step.ndim == 2 else step * np.sqrt(len(J))  # one number moves all entries
    most = float(np.sum(np.asarray(problem.client_weights) * each))
    return most * float(np.linalg.norm(np.linalg.inv(J), 2)) / (1.0 - factor) if np.isfinite(most) else float("nan")

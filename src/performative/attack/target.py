"""What is attacked: an algorithm's own parts, and the claim that is made for them."""

import dataclasses
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from performative.aggregators import AbstractAggregator, Mean, Median
from performative.algorithm import Algorithm
from performative.attack.crafted import along
from performative.batches import Fixed
from performative.channels import ClippedNoise, Plain
from performative.estimators import Clipped, Minibatch
from performative.participation import Full, LocalWork
from performative.populations import Database
from performative.privacy.certification import guarantee, read_unit
from performative.problem import Problem
from performative.types import Cohort, Memory, Theta, Upload

# How far rows reach beyond the clip.
STRETCH = 1000.0


class Contrast(AbstractAggregator):
    """move = delta_0 - delta_1: what someone can work out who sees the messages of two clients."""

    def aggregate(
        self, theta: Theta, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: Memory
    ) -> tuple[Theta, Memory]:
        return jax.tree.map(lambda delta: delta[0] - delta[1], upload.delta), memory


@dataclasses.dataclass(frozen=True)
class Target:
    """What is attacked: the user's own parts, stripped of what does not matter to the unit that is protected.

    sampler: what draws rows (a batch) or clients (a participation)
    size:    how many rows a sum holds on average; noise: its standard deviation in clips, as the parts say
    """

    algorithm: Algorithm
    unit: str
    sampler: Any
    size: float
    clip: float
    noise: float
    exact: bool


def read_target(algorithm: Algorithm, rows: int, unit: str | None) -> Target:
    """One local step a round, everyone present for examples; the plainest client inside for clients."""
    unit = read_unit(unit, algorithm)
    same: dict[str, Any] = {"local_steps": 1, "deploy": "never"}
    part: Any
    if unit == "client":
        scheme: Any = algorithm.participation
        scheme = scheme.inner if isinstance(scheme, LocalWork) else scheme
        same |= {"estimator": Minibatch(), "batch": Fixed(1), "rate": 1.0, "participation": scheme}
        part, sampler, size = algorithm.channel, scheme, float(scheme.size(rows))
    else:
        same |= {"channel": Plain(), "participation": Full(), "aggregator": Mean()}
        part, sampler = algorithm.estimator, algorithm.batch
        size = float(np.asarray(sampler.expected(Database(np.zeros(rows)))))
        while not hasattr(part, "clip") and hasattr(part, "inner"):
            part = part.inner
    plain = dataclasses.replace(algorithm, **same)
    clip, noise = (_one(part, name, default) for name, default in (("clip", 1.0), ("noise_multiplier", 0.0)))
    return Target(plain, unit, sampler, size, clip, noise, isinstance(part, (Clipped, ClippedNoise)))


def _one(part: Any, name: str, default: float) -> float:
    value = np.asarray(getattr(part, name, default), float)
    if value.ndim:
        raise ValueError(f"{type(part).__name__}: {name} varies; attack one value at a time.")
    return float(value)


def problem_of(target: Target, table: np.ndarray, other: np.ndarray | None = None) -> Problem:
    """The crafted rows as one client's table, or as one client each; `other` is a second client's table."""
    if target.unit == "client":
        return Problem(along, Database(table[:, None]))
    return Problem(along, Database(table[None] if other is None else np.stack([table, other])))


def accounted(target: Target, problem: Problem, rounds: int, delta: float) -> float:
    """What the accountant says of these parts."""
    algorithm = target.algorithm
    if isinstance(algorithm.aggregator, Contrast):  # known here alone; to the accountant a rule that uses each message
        algorithm = dataclasses.replace(algorithm, aggregator=Median())
    return float(guarantee(problem, algorithm, target.unit).spent(rounds, delta).epsilon)

"""The target of an attack: an algorithm's own parts, and the claim made for them."""

import dataclasses
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from performative.aggregators import AbstractAggregator, Mean
from performative.algorithm import Algorithm
from performative.batches import Fixed
from performative.channels import Plain
from performative.estimators import Minibatch
from performative.facts import Bound, said, said_bound
from performative.participation import Full
from performative.populations import Database
from performative.privacy.attack.crafted import along
from performative.privacy.certification import guarantee, read_unit
from performative.problem import Problem
from performative.types import Cohort, Theta, Upload

# How far rows extend beyond the clip.
STRETCH = 1000.0


class Contrast(AbstractAggregator[None]):
    """move = delta_0 - delta_1: what an observer of two clients' messages can compute."""

    ignores_data = True

    def aggregate(
        self, theta: Theta, upload: Upload, cohort: Cohort, weights: Float[Array, " N"], memory: None
    ) -> tuple[Theta, None]:
        return jax.tree.map(lambda delta: delta[0] - delta[1], upload.delta), memory


@dataclasses.dataclass(frozen=True)
class Target:
    """The target of an attack: the user's own parts, without those irrelevant to the protected unit.

    Attributes:
        law: how rows or clients are drawn, as declared by the sampler (`performative.draws`), None if not declared
        width: the maximum number of rows that a round processes at once
        size: average number of rows in a sum; noise: its declared standard deviation in clips
    """

    algorithm: Algorithm
    unit: str
    law: Any
    width: int
    size: float
    clip: float
    noise: float
    exact: bool


def read_target(algorithm: Algorithm, rows: int, unit: str | None) -> Target:
    """Reduce an algorithm to one local step per round: full participation for examples, plain clients for clients."""
    unit = read_unit(unit, algorithm)
    same: dict[str, Any] = {"local_steps": 1, "deploy": "never"}
    holder: Any
    if unit == "client":
        scheme = algorithm.participation.without_work()
        same |= {"estimator": Minibatch(), "batch": Fixed(1), "rate": 1.0, "participation": scheme}
        holder, law, width, size = algorithm.channel, said(scheme, "sampling", rows), rows, float(scheme.size(rows))
    else:
        same |= {"channel": Plain(), "participation": Full(), "aggregator": Mean()}
        table, batch = Database(np.zeros(rows)), algorithm.batch
        holder, law, width = algorithm.estimator, said(batch, "sampling", rows), batch.largest(table)
        size = float(np.asarray(batch.expected(table)))
    # An attack tests whatever is declared, even if it is not declared by the part's own class.
    told = said_bound(holder)
    bound = Bound(1.0, 0.0) if told is None else told
    clip, noise = (_one(bound, name) for name in ("clip", "noise_multiplier"))
    exact = told is not None and told.memory_clip is None
    return Target(dataclasses.replace(algorithm, **same), unit, law, width, size, clip, noise, exact)


def _one(bound: Bound, name: str) -> float:
    value = np.asarray(getattr(bound, name), float)
    if value.ndim:
        raise ValueError(f"{bound.owner}: {name} varies; attack one value at a time.")
    return float(value)


def problem_of(target: Target, table: np.ndarray, other: np.ndarray | None = None) -> Problem:
    """The crafted rows as one client's table, or with one client per row; `other` is a second client's table."""
    if target.unit == "client":
        return Problem(along, Database(table[:, None]))
    return Problem(along, Database(table[None] if other is None else np.stack([table, other])))


def accounted(target: Target, problem: Problem, rounds: int, delta: float) -> float:
    """The accountant's epsilon for these parts."""
    return float(guarantee(problem, target.algorithm, target.unit).spent(rounds, delta).epsilon)

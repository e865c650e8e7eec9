"""What a federation says about secure aggregation, and which parts it can serve."""

import dataclasses
import math
from typing import Any, ClassVar

import numpy as np

from performative._base.checks import check_counts
from performative.aggregators import AbstractAggregator
from performative.algorithm import Algorithm
from performative.facts import Bound, chain, declared, said_bound
from performative.live.secure.session import Session
from performative.problem import Problem
from performative.record import Record

# Rounding of float32 weights, as a part of them.
_ROUNDING = 1e-5
# Noise that protects people is at least so many units of the integers: rounding to them is then lost in it.
_NOISE_UNITS = 1024
# Of what is recorded, what is made of single answers.
UNSEEN = ("consensus", "world_metrics", "client_counts", "nonfinite_updates")
# What `Record(clients=...)` may ask for: the server's own numbers.
_OWN_NUMBERS = ("weight", "steps")


@dataclasses.dataclass(frozen=True)
class Secure:
    """Secure aggregation: the server learns the sum of a round's updates, and no single one.

    Attributes:
        threshold: t: fewest clients whose sum may be seen, more than half of the K of a round; with fewer the round is
            refused. None takes floor(2 K / 3) + 1, which holds against a server that lies as long as fewer than a third
            of the clients help it
        step: h: an entry of a round's sum is off by at most h / 2. An update fits as long as no entry of it, times the
            client's weight, is above h 2^63 / K^2
        weight_ratio: most that one client of a round may weigh in units of another: where one outweighs all others, the
            sum is its update. None works it out from the problem's weights, times K where participation may draw a
            client twice, times E where the aggregator evens out local steps
    """

    references: ClassVar[tuple[str, ...]] = ("bonawitz2017practical", "shamir1979share")

    threshold: int | None = None
    step: float = 2.0**-32
    weight_ratio: float | None = None

    def __post_init__(self) -> None:
        if self.threshold is not None:
            check_counts(threshold=self.threshold)
        for name in ("step", "weight_ratio"):
            value = getattr(self, name)
            if name == "weight_ratio" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise ValueError(f"secure: {name} must be a finite number above 0; got {value!r}.")
        if self.weight_ratio is not None and self.weight_ratio < 1:
            raise ValueError(f"secure: weight_ratio must be at least 1, equal weights; got {self.weight_ratio}.")


def read_secure(value: Any) -> Secure | None:
    """`Federation(secure=...)`: True for the defaults, False for none."""
    if isinstance(value, Secure):
        return value
    if not isinstance(value, bool):
        raise ValueError(f"secure must be True, False or pf.live.Secure(...); got {value!r}.")
    return Secure() if value else None


def threshold_of(secure: Secure, algorithm: Algorithm, clients: int) -> int:
    """t, for the cohorts of an algorithm."""
    size = algorithm.participation.size(clients)
    threshold = 2 * size // 3 + 1 if secure.threshold is None else secure.threshold
    if not max(2, size // 2 + 1) <= threshold <= size:
        raise ValueError(
            f"secure: threshold must be more than half of the {size} clients of a round, at least 2 and at most all of "
            f"them; got {threshold}."
        )
    return threshold


def session_of(
    secure: Secure, problem: Problem, algorithm: Algorithm, run: str, round: int, model: str, entries: int
) -> Session:
    """The session of a round, the same for the server and for every client: from their own files alone."""
    size = algorithm.participation.size(problem.clients)
    threshold = threshold_of(secure, algorithm, problem.clients)
    ratio = _weight_ratio(secure, problem, algorithm)
    return Session(run, round, model, entries + 1, threshold, size, float(secure.step), ratio)


def _weight_ratio(secure: Secure, problem: Problem, algorithm: Algorithm) -> float:
    if secure.weight_ratio is not None:
        return float(secure.weight_ratio)
    weights = np.asarray(problem.client_weights, float)
    ratio = float(weights.max() / weights.min())
    if declared(algorithm.participation.without_work(), "sampling", problem.clients) is None:
        ratio *= algorithm.participation.size(problem.clients)
    if any(part.evens_work for part in chain(algorithm.aggregator, AbstractAggregator)):
        ratio *= algorithm.steps
    return ratio * (1 + _ROUNDING)


def check_secure(secure: Secure, problem: Problem, algorithm: Algorithm, record: Record) -> None:
    """Refuse, by name, what needs more than the sum of updates."""
    only = "secure aggregation shows the server their sum only"
    for part in chain(algorithm.aggregator, AbstractAggregator):
        if not declared(part, "needs_sums_only"):
            raise ValueError(
                f"secure: the aggregator {type(part).__name__} needs single updates, and {only}; use Mean(), "
                "or Nova and ServerOpt around it, or leave secure out."
            )
    scheme = algorithm.participation
    for part in chain(scheme):
        if not declared(part, "ignores_data"):
            raise ValueError(
                f"secure: {type(part).__name__} chooses by losses or updates of single clients, and {only}; use "
                "Full(), SchemeOne(k) or SchemeTwo(k)."
            )
    if scheme.live().first_k is not None:
        raise ValueError(
            f"secure: with {type(scheme).__name__} weights follow from who answered first, and they must be agreed on "
            "before; use SchemeTwo(k)."
        )
    if not algorithm.sharing.is_one:
        raise ValueError(
            f"secure: sharing={type(algorithm.sharing).__name__} weighs entries client by client; use "
            "pf.sharing.OneModel()."
        )
    _check_record(record, only)
    weights = np.asarray(problem.client_weights, float)
    if weights.min() <= 0:
        raise ValueError(
            f"secure: client {int(weights.argmin())} weighs 0, so it would hide nobody; leave it out of the problem."
        )
    size = scheme.size(problem.clients)
    threshold_of(secure, algorithm, problem.clients)
    bound = said_bound(algorithm.channel) if algorithm.channel.grid_noise else None
    if bound is not None and (noise := _largest(bound)) > 0:
        units = noise / math.sqrt(size) * weights.min() * size / secure.step
        if units < _NOISE_UNITS:
            raise ValueError(
                f"secure: step={secure.step:g} is coarse beside the noise of {bound.owner}, which is {units:.3g} units "
                f"of the integers for one client; use a step that is {_NOISE_UNITS / units:.3g} times finer."
            )


def _largest(bound: Bound) -> float:
    """The noise on a sum."""
    return float(np.max(np.asarray(bound.noise_multiplier, float) * np.asarray(bound.clip, float)))


def _check_record(record: Record, only: str) -> None:
    if record.asks_losses:
        raise ValueError(f"secure: record asks for clients' losses, and {only} (of updates); leave them out.")
    for name in record.clients:
        if name not in _OWN_NUMBERS:
            raise ValueError(
                f"secure: record.clients has {name!r}, which is of single clients, and {only}; choose from "
                f"{', '.join(_OWN_NUMBERS)}."
            )
    for name, metric in record.metrics.items():
        if metric.unprotected:
            raise ValueError(f"secure: the metric {name!r} may look at single updates, and {only}; leave it out.")

"""A federation's settings of secure aggregation, and which parts support it."""

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

# Relative rounding error of float32 weights.
_ROUNDING = 1e-5
# Privacy noise must be at least this many integer units, so it dominates the rounding.
_NOISE_UNITS = 1024
# Recorded quantities that need individual answers.
UNSEEN = ("consensus", "world_metrics", "client_counts", "nonfinite_updates")
# What `Record(clients=...)` may request: the server's own numbers.
_OWN_NUMBERS = ("weight", "steps")


@dataclasses.dataclass(frozen=True)
class Secure:
    """Secure aggregation: the server learns the sum of a round's updates, but no individual one.

    Attributes:
        threshold: t: minimum number of clients whose sum may be revealed, more than half of the K of a round; with
            fewer the round fails. None uses floor(2 K / 3) + 1, which protects against a dishonest server if fewer than
            a third of the clients collude with it
        step: h: an entry of a round's sum is off by at most h / 2. An update fits if no entry of it, times the client's
            weight, exceeds h 2^63 / K^2
        weight_ratio: maximum ratio of two clients' weights in a round: if one outweighs all others, the sum is its
            update. None computes it from the problem's weights, times K if participation may draw a client twice, times
            E if the aggregator normalizes local steps
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
    """The session of a round, the same for the server and every client: computed only from their own files."""
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
    """Reject parts that need more than the sum of updates."""
    only = "secure aggregation reveals only their sum to the server"
    for part in chain(algorithm.aggregator, AbstractAggregator):
        if not declared(part, "needs_sums_only"):
            raise ValueError(
                f"secure: the aggregator {type(part).__name__} needs individual updates, and {only}; use Mean(), "
                "or Nova and ServerOpt around it, or omit secure."
            )
    scheme = algorithm.participation
    for part in chain(scheme):
        if not declared(part, "ignores_data"):
            raise ValueError(
                f"secure: {type(part).__name__} chooses by losses or updates of individual clients, and {only}; use "
                "Full(), SchemeOne(k) or SchemeTwo(k)."
            )
    if scheme.live().first_k is not None:
        raise ValueError(
            f"secure: with {type(scheme).__name__} weights depend on who answers first, but they must be agreed on in "
            "advance; use SchemeTwo(k)."
        )
    if not algorithm.sharing.is_one:
        raise ValueError(
            f"secure: sharing={type(algorithm.sharing).__name__} weights entries separately for each client; use "
            "pf.sharing.OneModel()."
        )
    _check_record(record, only)
    weights = np.asarray(problem.client_weights, float)
    if weights.min() <= 0:
        raise ValueError(
            f"secure: client {int(weights.argmin())} has weight 0, so it would hide nobody; remove it from the problem."
        )
    size = scheme.size(problem.clients)
    threshold_of(secure, algorithm, problem.clients)
    bound = said_bound(algorithm.channel) if algorithm.channel.grid_noise else None
    if bound is not None and (noise := _largest(bound)) > 0:
        units = noise / math.sqrt(size) * weights.min() * size / secure.step
        if units < _NOISE_UNITS:
            raise ValueError(
                f"secure: step={secure.step:g} is too coarse for the noise of {bound.owner}, which is {units:.3g} "
                f"integer units for one client; use a step {_NOISE_UNITS / units:.3g} times finer."
            )


def _largest(bound: Bound) -> float:
    """The noise on a sum."""
    return float(np.max(np.asarray(bound.noise_multiplier, float) * np.asarray(bound.clip, float)))


def _check_record(record: Record, only: str) -> None:
    if record.asks_losses:
        raise ValueError(f"secure: record requests clients' losses, and {only} (of updates); remove them.")
    for name in record.clients:
        if name not in _OWN_NUMBERS:
            raise ValueError(
                f"secure: record.clients has {name!r}, which is per client, and {only}; choose from "
                f"{', '.join(_OWN_NUMBERS)}."
            )
    for name, metric in record.metrics.items():
        if metric.unprotected:
            raise ValueError(f"secure: the metric {name!r} may use individual updates, and {only}; remove it.")

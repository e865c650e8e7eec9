"""What can be promised about an algorithm on a problem, read off its parts; or why nothing can.

A part that is not known here makes the promise void (epsilon = infinity) and says so. One's own estimator is added by
`protection.register`, one's own population by `certified_rows.register`.
"""

import dataclasses
import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np

from performative.aggregators import Mean
from performative.algorithm import Algorithm
from performative.batches import AbstractBatch, Fixed, Poisson, Shuffled, Uniform
from performative.channels import ClippedNoise
from performative.estimators import AbstractEstimator, AdaptiveSize, Clipped, Dice, Filtered
from performative.participation import Full, LocalWork, SchemeTwo
from performative.populations import (
    Classes,
    Contaminated,
    Database,
    Gaussian,
    Mixture,
    Outliers,
    Pricing,
    Regression,
    Sluggish,
    Strategic,
)
from performative.populations.base import AbstractPopulation
from performative.privacy.accounting import (
    Everyone,
    PoissonSampling,
    Release,
    Sampling,
    Spending,
    WithoutReplacement,
    epsilons,
    most_steps,
)
from performative.problem import Problem

UNITS = ("example", "client")
# What noise on the models does not cover, should anyone publish it.
UNCOVERED = ("losses", "clip counts", "participants", "error memory")


class Uncertified(Exception):
    """Why a combination has no guarantee."""


@dataclasses.dataclass(frozen=True)
class Releases:
    """What one step, or one round, shows of one person or client, for the accountant.

    noise_multiplier: noise over the clip, on the sum
    each:             how many releases of that kind it counts for
    most:             no person is in more than this many, however long the run; None for no such limit
    """

    noise_multiplier: float
    sampling: Sampling
    each: Fraction = Fraction(1)
    most: int | None = None


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """What an algorithm promises to each example or to each client.

    It covers all models that were ever published and whatever people did in answer to them. `why` holds the reasons
    where nothing can be promised; `assumes` what has to be true outside of this program.
    """

    unit: str
    releases: Releases | None
    why: tuple[str, ...] = ()
    assumes: tuple[str, ...] = ()

    @property
    def certified(self) -> bool:
        return self.releases is not None

    def release(self, rounds: int) -> Release:
        """All that `rounds` rounds release."""
        assert self.releases is not None
        mine = self.releases
        count = math.ceil(rounds * mine.each)
        return Release(mine.noise_multiplier, count if mine.most is None else min(count, mine.most), mine.sampling)

    def spent(self, rounds: int, delta: float) -> Spending:
        """Epsilon after `rounds` rounds."""
        return self.spendings([rounds], delta)[0]

    def spendings(self, rounds: list[int], delta: float, grid: float | None = None) -> list[Spending]:
        """The same for several numbers of rounds. A coarse `grid` is quicker and never too small."""
        if self.releases is None:
            return [Spending(math.inf if r else 0.0, delta, "none", None, "", "; ".join(self.why)) for r in rounds]
        return epsilons(self.release(1), [self.release(r).steps for r in rounds], delta, grid)

    def most_rounds(self, epsilon: float, delta: float) -> float | int:
        """The most rounds that stay within epsilon: 0 where not even one does, infinity where none spends more."""
        if self.releases is None:
            return 0
        mine = self.releases
        if mine.most is not None and self.spent(math.ceil(mine.most / mine.each), delta).epsilon <= epsilon:
            return math.inf
        return math.floor(most_steps(self.release(1), epsilon, delta) / mine.each)


def guarantee(
    problem: Problem,
    algorithm: Algorithm,
    unit: str | None = None,
    published: tuple[str, ...] = (),
    conservative: bool = False,
) -> Guarantee:
    """What this algorithm promises on this problem, per round.

    unit:         "example" (one person's row is replaced, added or removed) or "client" (all of a client's data);
                  None takes the client where the channel is `ClippedNoise`, else the example
    published:    what is published beside the models, of "losses", "clip counts", "participants", "error memory":
                  none of it is covered by the noise
    conservative: for `Dice`, take the bound that holds whatever its memory replays: T releases without sampling, each
                  moved by up to 2 (C1 + n C2)
    """
    if unit is None:
        unit = "client" if isinstance(algorithm.channel, ClippedNoise) else "example"
    if unit not in UNITS:
        raise ValueError(f'unit must be "example" or "client"; got {unit!r}.')
    for name in published:
        if name not in UNCOVERED:
            raise ValueError(f"published: choose from {', '.join(UNCOVERED)} (models always are); got {name!r}.")
    assumes: list[str] = []
    try:
        if published:
            raise Uncertified(
                f"{', '.join(published)} {'is' if len(published) == 1 else 'are'} published without noise"
            )
        per = _for_clients if unit == "client" else _for_examples
        releases = per(problem, algorithm, conservative, assumes)
    except Uncertified as reason:
        return Guarantee(unit, None, (str(reason),), tuple(assumes))
    return Guarantee(unit, releases, (), tuple(assumes))


def _for_examples(problem: Problem, algorithm: Algorithm, conservative: bool, assumes: list[str]) -> Releases:
    """Each local step is a release. A client may be asked in every round, so every round counts."""
    batch, population = algorithm.batch, problem.population
    tables = certified_rows(population)
    size = float(np.max(np.asarray(batch.expected(population))))
    multiplier, sampled = protection(algorithm.estimator, size, conservative)
    if tables is None:
        assumes.append("no person is asked twice: the population has no table, every sample is a new person")
        return Releases(multiplier, Everyone(), Fraction(algorithm.steps), most=1)
    if not sampled:
        return Releases(multiplier, Everyone(), Fraction(algorithm.steps))
    # People of the smallest table are drawn most often; a Poisson sample is cut most often in the largest.
    if isinstance(batch, Poisson):
        assumes.append("how many rows each table has is no secret: the sum is divided by rate times that")
    step = releases_of(batch, max(tables) if isinstance(batch, Poisson) else min(tables), multiplier)
    return dataclasses.replace(step, each=step.each * algorithm.steps)


def _for_clients(problem: Problem, algorithm: Algorithm, conservative: bool, assumes: list[str]) -> Releases:
    """Each round is a release of the sum of updates, or of every single one where the server uses them singly."""
    channel, scheme = algorithm.channel, algorithm.participation
    if not isinstance(channel, ClippedNoise):
        raise Uncertified(f"the channel {type(channel).__name__} bounds no client's update; use ClippedNoise")
    if isinstance(scheme, LocalWork):
        scheme = scheme.inner
    clients = problem.clients
    size, weights = scheme.size(clients), np.asarray(problem.client_weights, float)
    z = _number(channel.noise_multiplier, "ClippedNoise: noise_multiplier")
    if isinstance(algorithm.aggregator, Mean) and isinstance(scheme, (Full, SchemeTwo)):
        assumes.append("only sums of updates are looked at: a trusted server, or secure aggregation")
        # Client i moves the sum by a_i c; the noise of the sum is at least that of the lightest other clients.
        heavy, light = weights.max(), weights.min()
        spread = np.sum(weights**2) if isinstance(scheme, Full) else heavy**2 + (size - 1) * light**2
        z = z * math.sqrt(spread / size) / heavy
        return Releases(z, Everyone() if size == clients else WithoutReplacement(size, clients))
    inside = type(_innermost(algorithm.estimator))
    if inside.finish is not AbstractEstimator.finish:
        raise Uncertified(f"{inside.__name__} sends statistics beside its update, which are not clipped")
    assumes.append("every client may take part in every round; single messages are seen")
    return Releases(z / math.sqrt(size), Everyone())


def releases_of(batch: AbstractBatch | None, rows: int | None, noise_multiplier: float) -> Releases:
    """What a step with such a batch releases. `None` is a batch of everyone."""
    if batch is None:
        return Releases(noise_multiplier, Everyone())
    if rows is None:
        raise ValueError(f"rows: how large is the table that {type(batch).__name__} draws from?")
    if isinstance(batch, Fixed):
        # n draws with replacement and noise z: a sum of n releases of one draw with noise z / sqrt(n) each.
        return Releases(noise_multiplier / math.sqrt(batch.n), WithoutReplacement(1, rows), Fraction(batch.n))
    if isinstance(batch, Uniform):
        return Releases(noise_multiplier, WithoutReplacement(batch.n, rows))
    if isinstance(batch, Poisson):
        return Releases(noise_multiplier, PoissonSampling(_number(batch.rate, "Poisson: rate"), rows, batch.n_max))
    if isinstance(batch, Shuffled):
        # A person is in one batch an epoch, and the order tells nobody which: no amplification is claimed.
        return Releases(noise_multiplier, Everyone(), Fraction(1, max(rows // batch.n, 1)))
    raise Uncertified(f"how the batch {type(batch).__name__} picks rows is not known to the accountant")


@functools.singledispatch
def protection(estimator: AbstractEstimator, size: float, conservative: bool) -> tuple[float, bool]:
    """Noise over what one person can add to the sum of a batch of `size`, and whether the sampling of rows counts."""
    raise Uncertified(f"the estimator {type(estimator).__name__} bounds no person's gradient; use Clipped")


@protection.register
def _(estimator: Clipped, size: float, conservative: bool) -> tuple[float, bool]:
    return _number(estimator.noise_multiplier, "Clipped: noise_multiplier"), True


@protection.register
def _(estimator: Dice, size: float, conservative: bool) -> tuple[float, bool]:
    if not conservative:
        raise Uncertified(
            "Dice's memory replays one person's gradient in later steps, so no sampling protects it and sqrt(96) times "
            "the noise is no proof; conservative=True takes a bound that holds"
        )
    z = _number(estimator.noise_multiplier, "Dice: noise_multiplier")
    c1, c2 = _number(estimator.clip, "Dice: clip"), _number(estimator.memory_clip, "Dice: memory_clip")
    return z * c1 / (c1 + size * c2), False


@protection.register
def _(estimator: AdaptiveSize, size: float, conservative: bool) -> tuple[float, bool]:
    raise Uncertified("AdaptiveSize chooses how many samples to draw by looking at the data")


@protection.register
def _(estimator: Filtered, size: float, conservative: bool) -> tuple[float, bool]:
    raise Uncertified("Filtered leaves samples out by looking at the others, so one person can move many")


@functools.singledispatch
def certified_rows(population: AbstractPopulation) -> list[int] | None:
    """Rows of each client's table, all as likely to be drawn as any other; None where every sample is a new person."""
    raise Uncertified(f"how {type(population).__name__} picks people is not known to the accountant")


@certified_rows.register(Strategic)
@certified_rows.register(Database)
def _(population: Any) -> list[int] | None:
    return np.unique(np.asarray(population.rows, int)).tolist()


@certified_rows.register(Classes)
@certified_rows.register(Gaussian)
@certified_rows.register(Outliers)
@certified_rows.register(Pricing)
@certified_rows.register(Regression)
def _(population: Any) -> list[int] | None:
    return None


@certified_rows.register
def _(population: Mixture) -> list[int] | None:
    if any(certified_rows(group) is not None for group in population.groups):
        raise Uncertified("Mixture picks a group first, so rows of its tables are not equally likely")
    return None


@certified_rows.register(Contaminated)
@certified_rows.register(Sluggish)
def _(population: Any) -> list[int] | None:
    return certified_rows(population.inner)


def _innermost(estimator: Any) -> Any:
    return _innermost(estimator.inner) if hasattr(estimator, "inner") else estimator


def _number(value: Any, name: str) -> float:
    array = np.asarray(value, float)
    if array.ndim:
        raise Uncertified(f"{name} varies; a guarantee is for one value")
    return float(array)

"""What single parts show of one person or client. What is not named here is not certified."""

import dataclasses
import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np

from performative.batches import AbstractBatch, Fixed, Poisson, Shuffled, Uniform, Whole
from performative.estimators import AdaptiveSize, Clipped, Dice, Filtered, Preconditioned, Prox
from performative.estimators.base import AbstractEstimator
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
    WithoutReplacement,
    most_steps,
    spending,
)


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

    def told(self) -> dict[str, Any]:
        """All of it for JSON."""
        sampling = {"kind": type(self.sampling).__name__, **vars(self.sampling)}
        return {"z": self.noise_multiplier, "sampling": sampling, "each": str(self.each), "most": self.most}

    def after(self, rounds: int) -> Release:
        """All that `rounds` rounds release."""
        count = math.ceil(rounds * self.each)
        return Release(self.noise_multiplier, count if self.most is None else min(count, self.most), self.sampling)

    def most_rounds(self, epsilon: float, delta: float) -> float | int:
        """The most rounds that stay within epsilon."""
        if (
            self.most is not None
            and spending(Release(self.noise_multiplier, self.most, self.sampling), delta).epsilon <= epsilon
        ):
            return math.inf
        return math.floor(most_steps(self.after(1), epsilon, delta) / self.each)


def most_times(batch: AbstractBatch) -> int:
    """How often one row can be in one batch."""
    if type(batch) not in (Fixed, Poisson, Shuffled, Uniform, Whole):
        raise Uncertified(f"how the batch {type(batch).__name__} picks rows is not known to the accountant")
    return batch.n if type(batch) is Fixed else 1


def releases_of(batch: AbstractBatch | None, rows: int | None, noise_multiplier: float) -> Releases:
    """What a step with such a batch releases. `None` is a batch of everyone."""
    if batch is None:
        return Releases(noise_multiplier, Everyone())
    if rows is None:
        raise ValueError(f"rows: how large is the table that {type(batch).__name__} draws from?")
    if type(batch) is Fixed:
        # n draws with replacement and noise z: a sum of n releases of one draw with noise z / sqrt(n) each.
        return Releases(noise_multiplier / math.sqrt(batch.n), WithoutReplacement(1, rows), Fraction(batch.n))
    if type(batch) is Uniform:
        return Releases(noise_multiplier, WithoutReplacement(batch.n, rows))
    if type(batch) is Poisson:
        return Releases(noise_multiplier, PoissonSampling(one_number(batch.rate, "Poisson: rate"), rows, batch.n_max))
    if type(batch) is Shuffled:
        # A person is in one batch an epoch, and the order tells nobody which: no amplification is claimed.
        return Releases(noise_multiplier, Everyone(), Fraction(1, max(rows // batch.n, 1)))
    if type(batch) is Whole:
        return Releases(noise_multiplier, Everyone())
    raise Uncertified(f"how the batch {type(batch).__name__} picks rows is not known to the accountant")


@functools.singledispatch
def protection(estimator: AbstractEstimator, size: float, times: int, conservative: bool) -> tuple[float, bool]:
    """Noise over what one person can add to the sum of a batch, and whether the sampling of rows counts.

    `size` is the mean size of the batch, `times` how often one person can be in it.
    """
    raise Uncertified(f"the estimator {type(estimator).__name__} bounds no person's gradient; use Clipped")


@protection.register
def _(estimator: Clipped, size: float, times: int, conservative: bool) -> tuple[float, bool]:
    one_number(estimator.clip, "Clipped: clip")
    return one_number(estimator.noise_multiplier, "Clipped: noise_multiplier"), True


@protection.register
def _(estimator: Dice, size: float, times: int, conservative: bool) -> tuple[float, bool]:
    if not conservative:
        raise Uncertified(
            "Dice's memory replays one person's gradient in later steps, so no sampling protects it and sqrt(96) times "
            "the noise is no proof; conservative=True takes a bound that holds"
        )
    z = one_number(estimator.noise_multiplier, "Dice: noise_multiplier")
    c1, c2 = one_number(estimator.clip, "Dice: clip"), one_number(estimator.memory_clip, "Dice: memory_clip")
    return z * c1 / (times * c1 + size * c2), False


@protection.register(Prox)
@protection.register(Preconditioned)
def _(estimator: Any, size: float, times: int, conservative: bool) -> tuple[float, bool]:
    # What they do to a noisy direction looks at no data.
    return exactly(protection, estimator.inner, size, times, conservative)


@protection.register
def _(estimator: AdaptiveSize, size: float, times: int, conservative: bool) -> tuple[float, bool]:
    raise Uncertified("AdaptiveSize chooses how many samples to draw by looking at the data")


@protection.register
def _(estimator: Filtered, size: float, times: int, conservative: bool) -> tuple[float, bool]:
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
    if any(exactly(certified_rows, group) is not None for group in population.groups):
        raise Uncertified("Mixture picks a group first, so rows of its tables are not equally likely")
    return None


@certified_rows.register
def _(population: Contaminated) -> list[int] | None:
    if exactly(certified_rows, population.outlier) is not None:
        raise Uncertified("Contaminated: the rows of outlier's table are drawn by chance of their own")
    return exactly(certified_rows, population.inner)


@certified_rows.register
def _(population: Sluggish) -> list[int] | None:
    return exactly(certified_rows, population.inner)


def exactly(rule: Any, part: Any, *arguments: Any) -> Any:
    """A rule that is made for this very class: a subclass may do anything."""
    return rule.dispatch(type(part) if type(part) in rule.registry else object)(part, *arguments)


def one_number(value: Any, name: str) -> float:
    array = np.asarray(value, float)
    if array.ndim:
        raise Uncertified(f"{name} varies; a guarantee is for one value")
    return float(array)

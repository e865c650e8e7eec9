"""What a step, or a round, shows of one person or client, from what the parts declare."""

import dataclasses
import math
from fractions import Fraction
from typing import Any, cast

from performative.batches import AbstractBatch
from performative.draws import Epochs, Everyone, Law, WithoutReplacement, WithReplacement
from performative.estimators.base import AbstractEstimator, bound_of
from performative.facts import Uncertified, declared, one_number
from performative.populations.base import AbstractPopulation, equal_rows_of
from performative.privacy.accounting import Release, Sampling, most_steps, spending
from performative.types import Unchecked


@dataclasses.dataclass(frozen=True)
class Releases:
    """What one step, or one round, shows of one person or client, for the accountant.

    Attributes:
        noise_multiplier: noise over the clip, on the sum
        each: how many releases of that kind it counts for
        most: no person is in more than this many, however long the run; None for no such limit
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


def law_of(batch: AbstractBatch, rows: int | None) -> Unchecked[Law]:
    """How a batch draws from a table of so many rows, by its own word; refused where it has none."""
    law = declared(batch, "sampling", rows)
    if law is None:
        raise Uncertified(f"how the batch {type(batch).__name__} picks rows is not known to the accountant")
    return law


def releases_of(batch: AbstractBatch | None, rows: int | None, noise_multiplier: float) -> Releases:
    """What a step with such a batch releases. `None` is a batch of everyone."""
    if batch is None:
        return Releases(noise_multiplier, Everyone())
    if rows is None:
        raise ValueError(f"rows: how large is the table that {type(batch).__name__} draws from?")
    return releases_by(law_of(batch, rows), noise_multiplier)


def releases_by(law: Unchecked[Law], noise_multiplier: float) -> Releases:
    """What a sum over units that are drawn by such a law releases, in terms that the accountant knows."""
    if isinstance(law, WithReplacement):
        # n draws with replacement and noise z: a sum of n releases of one draw with noise z / sqrt(n) each.
        one = WithoutReplacement(1, cast(int, law.rows))
        return Releases(noise_multiplier / math.sqrt(law.n), one, Fraction(law.n))
    if isinstance(law, Epochs):
        # A person is in one batch an epoch, and the order tells nobody which: no amplification is claimed.
        return Releases(noise_multiplier, Everyone(), Fraction(1, law.steps))
    if not isinstance(law, Sampling):
        raise Uncertified(f"the accountant does not know the law {type(law).__name__}; use one of performative.draws")
    return Releases(noise_multiplier, law)


def protection(estimator: AbstractEstimator, size: float, times: int, conservative: bool) -> tuple[float, bool]:
    """Noise over what one person can add to the sum of a batch, and whether the sampling of rows counts.

    `size` is the mean size of the batch, `times` how often one person can be in it. From what the estimator's own class
    declares in `bound`.
    """
    bound = bound_of(estimator)
    if bound.memory_clip is not None and not conservative:
        raise Uncertified(
            f"{bound.owner}'s memory replays one person's gradient in later steps, so no sampling protects it and "
            "sqrt(96) times the noise is no proof; conservative=True takes a bound that holds"
        )
    clip = one_number(bound.clip, f"{bound.owner}: clip")
    z = one_number(bound.noise_multiplier, f"{bound.owner}: noise_multiplier")
    if bound.memory_clip is None:
        return z, True
    return z * clip / (times * clip + size * one_number(bound.memory_clip, f"{bound.owner}: memory_clip")), False


def certified_rows(population: AbstractPopulation) -> list[int] | None:
    """Rows of each client's table, all as likely to be drawn as any other; None where every sample is a new person.

    From what the population's own class declares in `equal_rows`.
    """
    return list(equal_rows_of(population)) or None

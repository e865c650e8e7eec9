"""What a step or a round releases about one person or client, from what the parts declare."""

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
    """What one step or round releases about one person or client, for the accountant.

    Attributes:
        noise_multiplier: noise on the sum, divided by the clip
        each: how many such releases it counts as
        most: the most releases any person is in, however long the run; None for no limit
    """

    noise_multiplier: float
    sampling: Sampling
    each: Fraction = Fraction(1)
    most: int | None = None

    def told(self) -> dict[str, Any]:
        """Convert to JSON-compatible values."""
        sampling = {"kind": type(self.sampling).__name__, **vars(self.sampling)}
        return {"z": self.noise_multiplier, "sampling": sampling, "each": str(self.each), "most": self.most}

    def after(self, rounds: int) -> Release:
        """Everything that `rounds` rounds release."""
        count = math.ceil(rounds * self.each)
        return Release(self.noise_multiplier, count if self.most is None else min(count, self.most), self.sampling)

    def most_rounds(self, epsilon: float, delta: float) -> float | int:
        """The largest number of rounds that stays within epsilon."""
        if (
            self.most is not None
            and spending(Release(self.noise_multiplier, self.most, self.sampling), delta).epsilon <= epsilon
        ):
            return math.inf
        return math.floor(most_steps(self.after(1), epsilon, delta) / self.each)


def law_of(batch: AbstractBatch, rows: int | None) -> Unchecked[Law]:
    """How a batch draws from a table of `rows` rows, as it declares; raise if it does not declare it."""
    law = declared(batch, "sampling", rows)
    if law is None:
        raise Uncertified(f"how the batch {type(batch).__name__} picks rows is not known to the accountant")
    return law


def releases_of(batch: AbstractBatch | None, rows: int | None, noise_multiplier: float) -> Releases:
    """What a step with this batch releases. `None` is a batch of everyone."""
    if batch is None:
        return Releases(noise_multiplier, Everyone())
    if rows is None:
        raise ValueError(f"rows: pass the number of rows of the table that {type(batch).__name__} draws from.")
    return releases_by(law_of(batch, rows), noise_multiplier)


def releases_by(law: Unchecked[Law], noise_multiplier: float) -> Releases:
    """What a sum over units drawn by this law releases, in the accountant's terms."""
    if isinstance(law, WithReplacement):
        # n draws with replacement and noise z: a sum of n releases of one draw with noise z / sqrt(n) each.
        one = WithoutReplacement(1, cast(int, law.rows))
        return Releases(noise_multiplier / math.sqrt(law.n), one, Fraction(law.n))
    if isinstance(law, Epochs):
        # A person is in one batch per epoch, in a secret position; no amplification is claimed for that.
        return Releases(noise_multiplier, Everyone(), Fraction(1, law.steps))
    if not isinstance(law, Sampling):
        raise Uncertified(f"the accountant does not know the law {type(law).__name__}; use one of performative.draws")
    return Releases(noise_multiplier, law)


def protection(estimator: AbstractEstimator, size: float, times: int, conservative: bool) -> tuple[float, bool]:
    """Noise relative to one person's largest contribution to the sum of a batch, and whether row sampling counts.

    `size` is the mean batch size, `times` how often one person can be in a batch. Based on what the estimator's own
    class declares in `bound`.
    """
    bound = bound_of(estimator)
    if bound.memory_clip is not None and not conservative:
        raise Uncertified(
            f"{bound.owner}'s memory replays one person's gradient in later steps, so sampling does not protect it and "
            "multiplying the noise by sqrt(96) is not proved to suffice; conservative=True uses a valid bound"
        )
    clip = one_number(bound.clip, f"{bound.owner}: clip")
    z = one_number(bound.noise_multiplier, f"{bound.owner}: noise_multiplier")
    if bound.memory_clip is None:
        return z, True
    return z * clip / (times * clip + size * one_number(bound.memory_clip, f"{bound.owner}: memory_clip")), False


def certified_rows(population: AbstractPopulation) -> list[int] | None:
    """Number of rows in each client's table, all equally likely to be drawn; None if every sample is a new person.

    Based on what the population's own class declares in `equal_rows`.
    """
    return list(equal_rows_of(population)) or None

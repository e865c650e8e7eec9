"""Sampling distributions of table rows, or clients, in a step: what accountants and attackers need to know.

A batch, or a participation scheme, declares which of these it uses (`sampling`); nothing here draws.
"""

import dataclasses

import numpy as np

from performative.types import Unchecked

__all__ = ["Epochs", "Everyone", "PoissonSampling", "WithReplacement", "WithoutReplacement"]

ADD_OR_REMOVE = "add_or_remove_one"
REPLACE = "replace_one"
# Probabilities of a count below this are invisible to any attack.
NEGLIGIBLE = 1e-12


def is_whole(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


class Law:
    """What all sampling distributions declare, with common defaults.

    neighbors:    the relation that an accountant takes: one unit is replaced, or added or removed
    fixed_size:    whether every step has the same number of units
    """

    neighbors = REPLACE
    fixed_size = True

    @property
    def times(self) -> int:
        """The maximum number of times that one unit can be in a step."""
        return 1

    def chances(self) -> np.ndarray | None:
        """P(one given unit is drawn k times in a step), k = 0, 1, ...; None if steps are not alike."""
        return None


@dataclasses.dataclass(frozen=True)
class Everyone(Law):
    """Every unit is in every release. One is replaced: the sum changes by two clips, so half the multiplier counts."""

    def chances(self) -> np.ndarray | None:
        return np.asarray([0.0, 1.0])


@dataclasses.dataclass(frozen=True)
class PoissonSampling(Law):
    """Each unit joins independently with probability `rate`. One unit is added or removed: a change of one clip.

    With `rows` and `most`, at most `most` of them are kept, drawn at random; `rows` counts the larger of the two
    neighbors. A unit can then displace another, which dp-accounting bounds by a change of two clips each way.
    """

    rate: Unchecked[float]
    rows: Unchecked[int | None] = None
    most: Unchecked[int | None] = None

    neighbors = ADD_OR_REMOVE
    fixed_size = False

    def __post_init__(self) -> None:
        if not 0.0 < self.rate <= 1.0:
            raise ValueError(f"PoissonSampling: rate must lie in (0, 1]; got {self.rate!r}.")
        if self.most is not None and self.rows is None:
            raise ValueError("PoissonSampling: most needs rows, the number of units to draw from.")
        for name, value in (("rows", self.rows), ("most", self.most)):
            if value is not None and not (is_whole(value) and value >= 1):
                raise ValueError(f"PoissonSampling: {name} must be a whole number >= 1; got {value!r}.")

    @property
    def truncated(self) -> bool:
        return self.most is not None and self.rows is not None and bool(self.most < self.rows)

    def chances(self) -> np.ndarray | None:
        return np.asarray([1 - self.rate, self.rate])


@dataclasses.dataclass(frozen=True)
class WithoutReplacement(Law):
    """`n` of `rows` units, drawn uniformly without replacement. One unit is replaced: a change of two clips.

    With P = N(2, z^2), Q = N(0, z^2) and q = n / rows one release is dominated by

        delta(e) = H_e(q P + (1-q) Q || Q)  for e >= 0,      H_e(P || (1-q) P + q Q)  for e < 0

    Zhu, Dong and Wang 2022. Tighter than dp-accounting's own event, which lets the two records
    differ by four clips; the first line alone (Poisson at half the multiplier) is attained, see `epsilon_bounds`.
    """

    n: Unchecked[int]
    rows: Unchecked[int]

    def __post_init__(self) -> None:
        if not (is_whole(self.n) and is_whole(self.rows) and 1 <= self.n <= self.rows):
            raise ValueError(
                f"WithoutReplacement needs whole numbers 1 <= n <= rows; got n={self.n!r}, rows={self.rows!r}."
            )

    def chances(self) -> np.ndarray | None:
        return np.asarray([1 - self.n / self.rows, self.n / self.rows])


@dataclasses.dataclass(frozen=True)
class WithReplacement(Law):
    """`n` independent draws from `rows` units, equally likely; `rows` is None if unknown."""

    n: Unchecked[int]
    rows: Unchecked[int | None]

    @property
    def times(self) -> int:
        return int(self.n)

    def chances(self) -> np.ndarray | None:
        if self.rows is None:
            return None
        from scipy import stats

        chances = stats.binom.pmf(np.arange(self.n + 1), self.n, 1 / self.rows)
        return chances[: np.flatnonzero(chances > NEGLIGIBLE)[-1] + 1]


@dataclasses.dataclass(frozen=True)
class Epochs(Law):
    """Every unit once in an epoch of rows // n steps, in a new random order; the rest is dropped."""

    n: Unchecked[int]
    rows: Unchecked[int]

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return max(int(self.rows) // int(self.n), 1)

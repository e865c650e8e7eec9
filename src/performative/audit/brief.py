"""The first page of an audit: what it means for people, decisions, mistakes and money, as figures with intervals."""

import dataclasses
import math

from performative.findings import Plain


@dataclasses.dataclass(frozen=True)
class Figure(Plain):
    """One number for the first page.

    Attributes:
        value: NaN where it is not known; low, high: its interval, or its bounds where `bounds` is set
        unit: what it counts; why: why it is not known, or has no interval; "" where it has
        bounds: whether low and high are the least and the most that it can be whatever the missing outcomes are
    """

    value: float
    low: float
    high: float
    unit: str
    why: str = ""
    bounds: bool = False

    @property
    def known(self) -> bool:
        """Whether there is anything to say."""
        return math.isfinite(self.low) and math.isfinite(self.high)


def unknown(unit: str, why: str) -> Figure:
    """A figure that these logs do not have."""
    return Figure(math.nan, math.nan, math.nan, unit, why)


@dataclasses.dataclass(frozen=True)
class Brief(Plain):
    """What matters outside of statistics.

    Attributes:
        moved: how far the column that moved most went over the range of the models deployed, in its own unit
        in_sd: the same in standard deviations; column, client: which one
        missed: where no reaction was seen, the shift in standard deviations that would have been seen 9 times in 10
        acceptance: change of the share accepted between the first people and the last, in points of a hundred
        same_rule: whether both were judged by the last model, so that the people changed and not the rule
        mistakes: of a hundred decisions of the last deployment: accepted who should not be, rejected who should
        change: of those mistakes since the first deployment
        money: what the mistakes of the last deployment cost for a thousand decisions, at `cost` each
        excess: share of the least loss that settling where retraining leads costs
    """

    moved: Figure
    in_sd: float
    column: str
    client: str
    missed: float
    acceptance: Figure
    same_rule: bool
    mistakes: Figure
    change: Figure
    money: Figure
    cost: float | None
    excess: Figure

"""The first page of an audit: what it means for people, decisions, mistakes and money, as figures with intervals."""

import dataclasses
import math

from performative.findings import Plain


@dataclasses.dataclass(frozen=True)
class Figure(Plain):
    """One number for the first page.

    Attributes:
        value: NaN if unknown; low, high: its interval, or its bounds if `bounds` is set
        unit: what it counts; why: why it is unknown or has no interval; "" otherwise
        bounds: whether low and high are the smallest and largest possible values whatever the missing outcomes are
    """

    value: float
    low: float
    high: float
    unit: str
    why: str = ""
    bounds: bool = False

    @property
    def known(self) -> bool:
        """Whether the interval is finite."""
        return math.isfinite(self.low) and math.isfinite(self.high)


def unknown(unit: str, why: str) -> Figure:
    """A figure that these logs cannot provide."""
    return Figure(math.nan, math.nan, math.nan, unit, why)


@dataclasses.dataclass(frozen=True)
class Brief(Plain):
    """What matters beyond statistics.

    Attributes:
        moved: how far the column that moved most shifted over the range of deployed models, in its own unit
        in_sd: the same in standard deviations; column, client: which one
        missed: if no reaction was seen, the shift in standard deviations that would be detected with 90% power
        acceptance: change of the acceptance rate between the first people and the last, in percentage points
        same_rule: whether both were judged by the last model, so that the people changed and not the rule
        mistakes: per hundred decisions of the last deployment: people wrongly accepted or wrongly rejected
        change: of those mistakes since the first deployment
        money: what the mistakes of the last deployment cost per thousand decisions, at `cost` each
        excess: extra loss at the point where retraining leads, as a share of the least loss
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

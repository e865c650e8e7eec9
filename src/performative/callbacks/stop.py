"""Early stopping."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from performative._base.checks import check_counts, check_number, given, nearest
from performative.callbacks.news import News

# Measured only now and then: one that is missing from the news is not an error.
_RISKS = ("decoupled_risk", "performative_risk", "risk_spread")


@dataclasses.dataclass(frozen=True)
class Threshold:
    """Whether a recorded number, averaged over repeats, is below or above a value at the last record.

    Attributes:
        number: name of the recorded quantity: a level, a total or a risk
        below, above: the value; set one of them

    In a sweep it holds once it holds in every setting. NaN is neither below nor above, nor is a risk that was not
    measured.
    """

    number: str
    below: float | None = None
    above: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.number, str):
            raise ValueError(f"Threshold: number must be the name of a recorded quantity; got {self.number!r}.")
        if (self.below is None) == (self.above is None):
            raise ValueError(f"Threshold: give either below or above; got {self.below!r} and {self.above!r}.")
        check_number("Threshold", **given(below=self.below, above=self.above))

    def __call__(self, news: News) -> bool:
        if self.number in news.records:
            values = news.records[self.number][..., -1]
        elif self.number in news.risks:
            values = news.risks[self.number]
        elif self.number in _RISKS:
            return False
        else:
            known = (*news.records, *_RISKS)
            raise ValueError(f"Threshold: {self.number!r} is not recorded.{nearest(self.number, known)}")
        means = np.mean(np.asarray(values, np.float64), axis=-1)
        return bool(np.all(means < self.below if self.above is None else means > self.above))

    def __str__(self) -> str:
        return f"{self.number} < {self.below}" if self.above is None else f"{self.number} > {self.above}"


class Stop:
    """End a run once a condition holds.

    Args:
        condition: condition(news) -> bool, called between chunks with the records since the last call; or a `Threshold`
        every: rounds between checks; None for a twentieth of the run
        reason: the text in `history.meta["stopped_by"]`

    Only completed rounds count, also for privacy.
    """

    def __init__(
        self, condition: Callable[[News], Any] | Threshold, every: int | None = None, reason: str | None = None
    ):
        if not callable(condition):
            raise ValueError(f"Stop: condition must be a function of the news; got {condition!r}.")
        if reason is not None and not isinstance(reason, str):
            raise ValueError(f"Stop: reason must be text; got {reason!r}.")
        check_counts(**given(every=every))
        self.condition, self.every = condition, every
        name = str(condition) if isinstance(condition, Threshold) else getattr(condition, "__name__", None)
        self.reason = reason or f"Stop({name or type(condition).__name__})"

    def __call__(self, news: News) -> None:
        if bool(self.condition(news)):
            news.stop(f"{self.reason} at round {news.round}")

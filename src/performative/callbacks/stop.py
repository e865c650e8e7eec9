"""Early stopping."""

from collections.abc import Callable
from typing import Any

from performative.callbacks.news import News
from performative.errors import check_counts, given


class Stop:
    """End a run once a condition holds.

    condition: condition(news) -> bool, asked between chunks with the records since the last time
    every:     rounds between two looks; None takes a twentieth of the run
    reason:    what `history.meta["stopped_by"]` says

    The rounds that were run are those that count, for privacy too.
    """

    def __init__(self, condition: Callable[[News], Any], every: int | None = None, reason: str | None = None):
        if not callable(condition):
            raise ValueError(f"Stop: condition must be a function of the news; got {condition!r}.")
        if reason is not None and not isinstance(reason, str):
            raise ValueError(f"Stop: reason must be a sentence; got {reason!r}.")
        check_counts(**given(every=every))
        self.condition, self.every = condition, every
        self.reason = reason or f"Stop({getattr(condition, '__name__', type(condition).__name__)})"

    def __call__(self, news: News) -> None:
        if bool(self.condition(news)):
            news.stop(f"{self.reason} at round {news.round}")

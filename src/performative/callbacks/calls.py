"""The callbacks of a run, called in order."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from jaxtyping import PyTree

from performative.callbacks.news import News
from performative.callbacks.progress import Progress


class Calls:
    """All callbacks of a run, including a progress bar on a terminal if none was given."""

    def __init__(self, callbacks: Sequence[Any] = ()):
        for one in callbacks:
            if not callable(one):
                raise ValueError(f"callbacks must be called with pf.callbacks.News; got {one!r}.")
        bars = [one for one in callbacks if isinstance(one, Progress)] or [Progress()]
        self.users = [one for one in callbacks if not isinstance(one, Progress)]
        self.all = [*(bar for bar in bars[-1:] if bar.shown), *self.users]

    @property
    def every(self) -> list[int]:
        """The intervals in rounds that callbacks request."""
        return [int(one.every) for one in self.users if getattr(one, "every", None)]

    def looks_at(self) -> tuple[str, ...]:
        """Callbacks that read more than published models, in words."""
        seeing = [one for one in self.users if getattr(one, "unprotected", False)]
        return tuple(f"callback {type(one).__name__} receives all records" for one in seeing)

    def begin(self, about: dict[str, Any], total: int) -> None:
        for one in self.all:
            if hasattr(one, "begin"):
                one.begin(about, total)

    def tell(self, news: Callable[[], News], published: PyTree = None) -> list[str]:
        """Call all of them; return the reasons to stop, if any.

        `published` names the published records in a private run: callbacks see no others.
        """
        if not self.all:
            return []
        whole = news()
        few = whole
        if published is not None:
            kept = {name: values for name, values in whole.records.items() if name in published}
            few = dataclasses.replace(whole, records=kept, risks={})
        for one in self.all:
            one(whole if isinstance(one, Progress) or getattr(one, "unprotected", False) else few)
        return whole.reasons

    def close(self) -> None:
        for one in self.all:
            if hasattr(one, "close"):
                one.close()

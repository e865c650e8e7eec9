"""The callbacks of a run, called in order."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from jaxtyping import PyTree

from performative.callbacks.news import News
from performative.callbacks.progress import Progress


class Calls:
    """Every callback of a run. A progress bar is among them where someone is watching and none was given."""

    def __init__(self, callbacks: Sequence[Any] = ()):
        for one in callbacks:
            if not callable(one):
                raise ValueError(f"callbacks must be called with pf.callbacks.News; got {one!r}.")
        bars = [one for one in callbacks if isinstance(one, Progress)] or [Progress()]
        self.users = [one for one in callbacks if not isinstance(one, Progress)]
        self.all = [*(bar for bar in bars[-1:] if bar.shown), *self.users]

    @property
    def every(self) -> list[int]:
        """Rounds between two calls that callbacks ask for."""
        return [int(one.every) for one in self.users if getattr(one, "every", None)]

    def looks_at(self) -> tuple[str, ...]:
        """What of it looks at more than published models, in words."""
        seeing = [one for one in self.users if getattr(one, "unprotected", False)]
        return tuple(f"callback {type(one).__name__} is told all that is recorded" for one in seeing)

    def begin(self, about: dict[str, Any], total: int) -> None:
        for one in self.all:
            if hasattr(one, "begin"):
                one.begin(about, total)

    def tell(self, news: Callable[[], News], published: PyTree = None) -> list[str]:
        """Call all of them; returns why to stop, if anyone asked to.

        `published` names the records that are published, where there is privacy: callbacks see no others.
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

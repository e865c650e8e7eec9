"""A progress bar on a terminal."""

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from performative._base.bars import progress_bar
from performative.callbacks.news import News

# The quantity to show: the first one available.
_SHOWN = ("distance_to_stable", "performative_risk", "epsilon")


class Progress:
    """A progress bar on standard error, or below the cell of a notebook.

    show: None shows it on a terminal only, which is a run's default; True also shows it in a notebook.
    """

    def __init__(self, show: bool | None = None):
        if show is not None and not isinstance(show, bool):
            raise ValueError(f"Progress: show must be True, False or None; got {show!r}.")
        self.show = show
        self._stack = contextlib.ExitStack()
        self._update: Callable[[int, Callable[[], str]], None] | None = None

    @property
    def shown(self) -> bool:
        return sys.stderr.isatty() if self.show is None else self.show

    def begin(self, about: dict[str, Any], total: int) -> None:
        self._update = self._stack.enter_context(progress_bar(about.get("label", ""), total, True))

    def __call__(self, news: News) -> None:
        if self._update is not None:
            self._update(news.round, lambda: _note(news))

    def close(self) -> None:
        self._stack.close()
        self._update = None


def _note(news: News) -> str:
    found = news.records | news.risks
    last = {name: found[name][..., -1] if name in news.records else found[name] for name in _SHOWN if name in found}
    if "distance_to_stable" in last:
        last.pop("performative_risk", None)
    digits = {"epsilon": 3}
    shown = {name.replace("_", " "): f"{np.mean(values):.{digits.get(name, 4)}g}" for name, values in last.items()}
    return ", ".join(f"{name} {figure}" for name, figure in shown.items())

"""Write records to a table on disk during the run."""

import csv
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np

from performative._base.files import read_target
from performative.callbacks.news import News


class CSV:
    """One line per record and repeat, written during the run: (setting,) repeat, round, then all records.

    An existing file is overwritten; a run resumed from a checkpoint begins with the records stored there.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = read_target(path, "a CSV file")
        self._names: list[str] | None = None

    def begin(self, about: dict[str, Any], total: int) -> None:
        self._names = None

    def __call__(self, news: News) -> None:
        lead = ["repeat", "round"] if news.settings is None else ["setting", "repeat", "round"]
        fresh = self._names is None
        if self._names is None:
            self._names = list(news.records)
        with Path(self.path).open("w" if fresh else "a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            if fresh:
                writer.writerow([*lead, *self._names])
            columns = [np.asarray(news.records[name]) for name in self._names]
            leaf = jax.tree.leaves(news.theta)[0]
            for at in np.ndindex(*leaf.shape[: len(lead) - 1]):  # settings and repeats
                for place, round in enumerate(np.asarray(news.rounds).tolist()):
                    writer.writerow([*at, round, *(column[(*at, place)] for column in columns)])

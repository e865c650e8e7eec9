"""Monitor a run: its records against the deployed models."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from performative._base.checks import check_counts, nearest
from performative.callbacks.news import News


class Watching:
    """Pass each record of a run, or of a live federation, to a watch: one look per call.

    A look has one row, the numbers recorded in a round, and the model that the round began with, which is the deployed
    one if models are deployed by round. Looks begin with the second call, since the first model is unknown before.

    Args:
        watch: of `pf.watch`
        columns: names of recorded numbers that may react, such as a custom `pf.Metric`
        summary: from the model to {name: number}; None uses all its numbers, at most eight
        every: rounds between looks
        repeat: index of the repeat to watch
        stop: whether an alarm ends the run

    Example:
        watch = pf.watch(drift="none")
        watching = pf.callbacks.Watching(watch, ["consensus"])
        pf.run(problem, algorithm, rounds=20, theta=0.0, callbacks=[watching])
        print(watch.report())
    """

    def __init__(
        self,
        watch: Any,
        columns: Sequence[str],
        *,
        summary: Callable[[Any], Mapping[str, float]] | None = None,
        every: int = 1,
        repeat: int = 0,
        stop: bool = False,
    ):
        if not hasattr(watch, "update"):
            raise ValueError(f"Watching: watch must be created by pf.watch; got {watch!r}.")
        named = isinstance(columns, (list, tuple)) and all(isinstance(name, str) for name in columns)
        if not named or not columns:
            raise ValueError(f"Watching: columns must be a list of names of recorded numbers; got {columns!r}.")
        if summary is not None and not callable(summary):
            raise ValueError(f"Watching: summary must be a function of the model; got {summary!r}.")
        check_counts(every=every, repeat=repeat + 1 if isinstance(repeat, int) else repeat)
        self.watch, self.columns, self.summary = watch, tuple(columns), summary
        self.every, self.repeat, self.stop = every, repeat, stop
        self._model: dict[str, float] | None = None

    def begin(self, about: dict[str, Any], total: int) -> None:
        """Called when a run begins or resumes: its model comes with the first news."""
        self._model = None

    def __call__(self, news: News) -> None:
        if news.settings is not None:
            raise ValueError("Watching follows one run; in a sweep give each setting its own run and watch.")
        before, self._model = self._model, self._summarize(news.theta)
        if before is None:
            return
        row = {}
        for name in self.columns:
            found = news.records[name][self.repeat, -1] if name in news.records else None
            if found is None and name in news.risks:
                found = news.risks[name][self.repeat]
            if found is None:
                known = [*news.records, *news.risks]
                raise ValueError(f"Watching: {name!r} is not recorded.{nearest(name, known)}")
            row[name] = [float(found)]
        id = f"round {news.round}"
        outcome = self.watch.update(row, theta=before, deployment=id, time=news.round, id=id)
        if self.stop and outcome.alarms:
            news.stop(f"Watching: {outcome.alarms[0]['kind']} at round {news.round}")

    def _summarize(self, theta: Any) -> dict[str, float]:
        model = jax.tree.map(lambda leaf: np.asarray(leaf)[self.repeat], theta)
        if self.summary is not None:
            return {str(name): float(value) for name, value in self.summary(model).items()}
        leaves = [np.ravel(leaf) for leaf in jax.tree.leaves(model)]
        numbers = np.concatenate(leaves)
        names = ["model"] if len(numbers) == 1 else [f"model{i}" for i in range(len(numbers))]
        return dict(zip(names, map(float, numbers), strict=True))

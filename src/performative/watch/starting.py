"""A new watch, or one that goes on."""

import os
from pathlib import Path
from typing import Any

from performative.watch.monitor import Watch
from performative.watch.settings import Settings


def watch(
    state: str | os.PathLike[str] | None = None,
    *,
    drift: str = "smooth",
    alpha: float = 0.05,
    columns: Any = None,
    parameters: Any = None,
    clients: Any = None,
    loss_range: Any = None,
    loss_limit: float | None = None,
    gap_limit: float | None = None,
    window: int = 4096,
) -> Watch:
    """Watch a running deployment: do the data react to the models, at any number of looks?

        P(an alarm is ever raised | no reaction, drift as allowed) <= alpha

    Evidence for a reaction is an e-process for each client and overall; strengths, the deployed loss, gaps between
    groups and the contraction of retraining come with confidence sequences, which hold at all looks at once. What is
    assumed stands in `evidence`, `randomized`, `sequences` and `forecast`.

    Args:
        state: a file that `Watch.save` wrote; where it exists the watch goes on, and was told the rest at its start
        drift: what may move the data without the models: "none", "linear", "walk", "smooth" (walks, bends and
            waves), or "any": then only what chance added to the models counts (`explore_<name>`)
        alpha: the chance of a false alarm, over all looks
        columns: that may react; None takes all that have no role in the first batch
        parameters: of the model; None takes all of the first batch
        clients: all that will ever come, for equal shares; None gives most to those of the first batch
        loss_range: (lowest, highest) of a column `loss`; None has an asymptotic sequence for it
        loss_limit, gap_limit: an alarm once the mean loss, or the gap in acceptance, is above it for sure
        window: batches and deployments that are remembered, so that what comes again changes nothing
    """
    if state is not None and not isinstance(state, (str, os.PathLike)):
        raise ValueError(f"watch: state must be the path of a file; got {state!r}.")
    if state is not None and Path(state).is_dir():
        raise ValueError(f"watch: state={str(state)!r} is a folder; give the name of a file.")
    if state is not None and Path(state).exists():
        return Watch.load(state)
    return Watch(Settings(drift, alpha, columns, parameters, clients, loss_range, loss_limit, gap_limit, window))

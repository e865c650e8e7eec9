"""Start a watch, or resume one."""

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
    """Monitor a running deployment: do the data react to the models? Valid for any number of looks.

        P(a reaction is ever reported | no reaction, drift as allowed) <= alpha

    Evidence for a reaction is an e-process for each client and overall; strengths, the deployed loss, gaps between
    groups and the contraction of retraining come with confidence sequences, which are valid at all looks at once. The
    assumptions are listed in `evidence`, `randomized`, `sequences` and `forecast`.

    Args:
        state: a file written by `Watch.save`; if it exists, the watch resumes and keeps its original settings
        drift: what may move the data besides the models: "none", "linear", "walk", "smooth" (walks, bends and
            waves), or "any": then only the random part of the models counts (`explore_<name>`)
        alpha: the probability of a false alarm over all looks, for each kind: reaction, loss, gap
        columns: that may react; None for all without a role in the first batch
        parameters: of the model; None for all in the first batch
        clients: all that will ever appear, for equal shares; None gives most to those of the first batch
        loss_range: (lowest, highest) of a column `loss`; None for an asymptotic sequence
        loss_limit, gap_limit: raise an alarm once the confidence sequence of the mean loss, or of the gap in
            acceptance, lies above it
        window: how many batches and deployments are remembered, so that repeated ones change nothing
    """
    if state is not None and not isinstance(state, (str, os.PathLike)):
        raise ValueError(f"watch: state must be the path of a file; got {state!r}.")
    if state is not None and Path(state).is_dir():
        raise ValueError(f"watch: state={str(state)!r} is a folder; pass the name of a file.")
    if state is not None and Path(state).exists():
        return Watch.load(state)
    return Watch(Settings(drift, alpha, columns, parameters, clients, loss_range, loss_limit, gap_limit, window))

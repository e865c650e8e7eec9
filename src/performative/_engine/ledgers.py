"""The privacy ledger of a run."""

import dataclasses
from typing import Any

import numpy as np

from performative._base.messages import warn
from performative._engine.checkpoint import RunFolder
from performative._engine.setup import Setup
from performative.algorithm import Algorithm
from performative.callbacks.news import News
from performative.history import History
from performative.privacy.promise import BOOK, Privacy
from performative.problem import Problem
from performative.types import Theta


def read_ledger(
    privacy: Any, problem: Problem, algorithm: Algorithm, folder: RunFolder | None, theta: Theta = None,
    unseen_rows: bool = False, seen: tuple[str, ...] = (), secure_threshold: int | None = None,
) -> Any:  # fmt: skip
    """The privacy ledger, including what an earlier part of the run has spent; None if none is kept.

    `seen` names whatever reads more than published models, which voids the guarantee.
    """
    if privacy is None:
        if folder is not None and (folder.notes.get("ledger") or (folder.folder / BOOK).exists()):
            raise ValueError("privacy: the run in the checkpoint keeps a ledger; pass privacy= to continue it.")
        return None
    from performative.privacy.ledger import Ledger  # the accountant takes a while to import

    if not isinstance(privacy, Privacy):
        raise ValueError(f"privacy must be pf.Privacy(delta, epsilon); got {privacy!r}.")
    place = None if folder is None else folder.folder
    ledger = Ledger(privacy, problem, algorithm, place, theta, unseen_rows, seen, secure_threshold)
    for told in ledger.guarantee.not_covered if ledger.guarantee.promised else ():
        warn("privacy-not-covered", f"privacy: epsilon does not cover that {told}.")
    ledger.resume({"round": 0} if folder is None else folder.notes)
    return ledger


def add_ledger(history: History, ledger: Any, allowed: int, wanted: int) -> History:
    """The history with epsilon at each record, and the guarantee in its metadata."""
    column = np.broadcast_to(ledger.column(history.rounds), (history.repeats, len(history.rounds)))
    last = int(history.rounds[-1])
    return dataclasses.replace(
        history,
        records={**history.records, "epsilon": np.array(column)},
        meta={**history.meta, "privacy": ledger.summary(last, wanted, last == allowed < wanted)},
    )


def published_names(setup: Setup) -> tuple[str, ...]:
    """Records that callbacks may see in a private run: metrics of the model alone, and epsilon."""
    return ("epsilon", *(name for name, metric in setup.metrics.items() if not metric.unprotected))


def with_epsilon(news: News, ledger: Any, repeats: int) -> News:
    """The news with epsilon at each record."""
    spent = np.broadcast_to(ledger.column(news.rounds), (repeats, len(news.rounds)))
    return dataclasses.replace(news, records=news.records | {"epsilon": spent})

"""Summaries of one source that may leave it."""

import dataclasses
from pathlib import Path
from typing import Any

from performative._base.checks import check_counts
from performative.audit.merging import suppressed
from performative.audit.noise import noisy
from performative.audit.people import ONLY_CLIENT
from performative.audit.reading import ask, opening
from performative.audit.schema import LogError
from performative.audit.summaries import Summaries


def summarize(
    source: Any, *, map: str | Path | None = None, groups: str | None = None, trust: bool = False, least: int = 1,
    epsilon: float | None = None, delta: float | None = None, client: str | None = None,
) -> Summaries:  # fmt: skip
    """Sums by client, deployment and decision: all that an audit needs, without rows. Pass them to `audit_summaries`.

    Args:
        source, map, groups, trust: as for `audit_logs`
        least: cells with fewer rows are dropped and counted
        epsilon, delta: adds Gaussian noise for (epsilon, delta)-differential privacy of each person (one row); requires
            bounds for every feature, [clip] of audit.toml, and omits decisions and groups
        client: name of the only client if the rows name none, to tell several banks' files apart
    """
    check_counts(least=least)
    if (epsilon is None) != (delta is None):
        raise ValueError("summarize: pass both epsilon and delta for noise, or neither.")
    with opening(source, map, trust) as opened:
        asks = ask(opened, groups)
        seen = asks.summaries()
        # Which corrections are needed is known only after merging all parts.
        if seen.rule is not None:
            seen = dataclasses.replace(seen, always=asks.always())
        if seen.columns.propensity:
            seen = dataclasses.replace(seen, weighted=asks.weighted(seen.labeled.by_cell()[1]))
    if client is not None:
        if seen.clients != (ONLY_CLIENT,):
            raise LogError(f"client = {client!r}: the rows already name their clients; leave it out.")
        seen = name_client(seen, client)
    if epsilon is not None and delta is not None:
        return noisy(seen, epsilon, delta, least)
    return suppressed(seen, least) if least > 1 else seen


def name_client(seen: Summaries, client: str) -> Summaries:
    """The same sums, with the only client renamed."""
    who = (client,)

    def own(part: Any) -> Any:
        return None if part is None else dataclasses.replace(part, clients=who)

    return dataclasses.replace(
        seen, labeled=own(seen.labeled), unlabeled=own(seen.unlabeled),
        scores=(own(seen.scores[0]), own(seen.scores[1])),
        incomplete=own(seen.incomplete), weighted=own(seen.weighted),
        always=None if seen.always is None else (own(seen.always[0]), own(seen.always[1])),
        counts={(client, *key[1:]): n for key, n in seen.counts.items()},
    )  # fmt: skip

"""Alarms, each raised once."""

import math
from typing import Any


class Alarms:
    """Alarms so far, in order. Each alarm has its own id, so it is raised once however often its condition holds."""

    def __init__(self, raised: list[dict[str, Any]] | None = None):
        self.raised = raised or []

    def check(self, watch: Any, look: int) -> list[dict[str, Any]]:
        """New alarms: conditions of a `Watch` that hold now and were not raised before."""
        told = {one["id"] for one in self.raised}
        new = [{"id": id, "look": look, "told": False, **facts} for id, facts in _holding(watch) if id not in told]
        self.raised += new
        return [dict(one) for one in new]

    def waiting(self) -> list[dict[str, Any]]:
        """Alarms not yet sent to a webhook."""
        return [one for one in self.raised if not one["told"]]


def _holding(watch: Any) -> list[tuple[str, dict[str, Any]]]:
    asked, limit = watch.settings, math.log(1 / watch.settings.alpha)
    found: list[tuple[str, dict[str, Any]]] = []
    value = watch.log_evidence()
    if value >= limit:
        found.append(("reaction", {"kind": "reaction", "log_evidence": value}))
    if len(watch.series) > 1:
        for name in watch.series:
            value = watch.client_evidence(name)
            if value + math.log(watch.share(name)) >= limit:
                found.append((f"reaction/{name}", {"kind": "client reaction", "client": name, "log_evidence": value}))
    if asked.loss_limit is not None and watch.people.loss is not None:
        mean, low, _ = watch.people.loss.interval(asked.alpha)
        if low > asked.loss_limit:
            found.append(("loss", {"kind": "loss", "value": mean, "low": low, "limit": asked.loss_limit}))
    gap = None if asked.gap_limit is None else watch.people.widest_gap(asked.alpha)
    if gap is not None and gap["low"] > asked.gap_limit:
        found.append(("gap", {"kind": "gap", **gap, "limit": asked.gap_limit}))
    return found

"""The effect of decisions on outcomes, from logs as the audit reads them."""

from typing import Any

import numpy as np

from performative.audit.causes.cause import Cause
from performative.audit.causes.pick import effect
from performative.audit.queries import draw, fetch
from performative.audit.schema import LogError
from performative.audit.source import open_source

# Maximum number of rows that a design receives: a random sample if there are more.
MOST = 200_000


def cause_in_logs(
    source: Any, *, map: Any = None, groups: str | None = None, trust: bool = False, level: float = 0.95, seed: int = 0
) -> Cause:
    """`effect` of the decision on the label, by whichever design these logs identify.

    Args:
        source, map, groups, trust: as in `pf.audit.audit_logs`; seed: for sampling rows, and for the folds of "overlap"

    Up to MOST rows leave the engine; no other part of the audit needs this.
    """
    opened = open_source(source, map=map, trust=trust)
    try:
        people = opened.people(groups)
        if not people.columns.label:
            raise LogError("a cause needs outcomes: name the label under [columns] of audit.toml.", opened.name)
        if not people.decides:
            raise LogError(
                "a cause needs decisions: name `accepted`, or set [decision] threshold in audit.toml.", opened.name
            )
        return effect(_frame(people, seed), level=level, seed=seed, **_roles(people))
    finally:
        opened.close()


def _roles(people: Any) -> dict[str, Any]:
    """Arguments of `effect`."""
    columns, decision = people.columns, people.settings.decision
    roles: dict[str, Any] = {"outcome": "label", "decision": "accepted", "features": list(columns.features)}
    if columns.propensity:
        roles["propensity"] = "propensity"
    if decision.threshold is not None and (columns.score or people.rule is not None):
        limit = decision.threshold if columns.score or people.rule is None else people.rule[2]
        roles |= {"score": "score", "threshold": float(limit)}
    return roles


def _frame(people: Any, seed: int) -> Any:
    import pyarrow as pa

    rows = people.rows.filter(people.rows.fit)
    count = np.array([float(rows.count().to_pyarrow().as_py())])
    kept = ["accepted", "label", "score", "propensity", *people.seen]
    found = fetch(draw(rows, people.row, seed, {}, count, count, MOST, kept))
    names = {**dict(zip(people.seen, people.columns.features, strict=True))}
    return pa.table({names.get(name, name): np.asarray(found[name], np.float64) for name in kept})

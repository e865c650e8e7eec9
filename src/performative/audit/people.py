"""All rows as an expression: which are usable, their values, and how each person was decided on.

Columns of `People.rows`:

    client, deployment      strings; NULL if missing              group       a string, NULL if missing
    f0, f1, ..              features as the model saw them; finite in usable rows
    x0, x1, ..              the same, clipped, for features with [clip] in audit.toml
    label, propensity       numbers, NULL if empty                score       the model's, NULL if unknown
    accepted, side          1, 0 or NULL: the decision; the side of the threshold on which the score lies
    known, good             client and deployment are known; all features are finite
    fit, has                known and good, and the label not infinite; there is a label
    stratum                 3 * accepted + side, 2 for an unknown one; 0 if nothing is known about decisions
"""

import functools
import operator
from typing import Any

import ibis

from performative.audit.deployments import Deployments
from performative.audit.files import FILE, ROW
from performative.audit.queries import engine_of, flat, small_table
from performative.audit.roles import Columns
from performative.audit.rules import linear_models, linear_rule
from performative.audit.schema import Settings
from performative.audit.values import finite, is_finite, is_infinite, truth

ONLY_CLIENT = "all"
# Kinds of decisions: rejected, accepted, unknown; a stratum is a pair of decision and side of the threshold.
DECISIONS = 3


class People:
    """Rows of people, prepared. typed: role columns as returned by `performative.audit.source.Source.typed`."""

    def __init__(self, typed: Any, columns: Columns, deployments: Deployments, settings: Settings):
        self.columns, self.deployments, self.settings = columns, deployments, settings
        self.models = linear_models(columns.features, deployments, settings)
        self.rule = linear_rule(self.models, deployments, settings)
        self.row = ROW if ROW in typed.columns else None
        self.file = FILE if FILE in typed.columns else None
        self.width = len(columns.features)
        self.rows = flat(self._judged(self._scored(flat(self._values(typed)))))

    @property
    def decides(self) -> str | None:
        """The source of decisions: "accepted", "score", "theta" or None."""
        if self.columns.accepted:
            return "accepted"
        if self.settings.decision.threshold is None:
            return None
        return "score" if self.columns.score else "theta" if self.rule else None

    @property
    def strata(self) -> int:
        """Number of strata of a cell; 1 if nothing is known about decisions."""
        return DECISIONS**2 if self.decides else 1

    @property
    def seen(self) -> list[str]:
        """Names of the features as the model saw them."""
        return [f"f{j}" for j in range(self.width)]

    @property
    def measured(self) -> list[str]:
        """Names of the columns to average: features, clipped, and the label."""
        return [self._clipped(j) for j in range(self.width)] + (["label"] if self.columns.label else [])

    def _clipped(self, j: int) -> str:
        return f"x{j}" if self.columns.features[j] in self.settings.clip else f"f{j}"

    def _values(self, typed: Any) -> Any:
        """Select the columns by role; an infinite label is distinguished from a missing one."""
        c, null = self.columns, ibis.null("float64")
        made: dict[str, Any] = {f"f{j}": typed[name] for j, name in enumerate(c.features)}
        made["client"] = typed[c.client] if c.client else ibis.literal(ONLY_CLIENT)
        made["deployment"] = typed[c.deployment]
        made["group"] = typed[c.group] if c.group else ibis.literal(ONLY_CLIENT)
        made["label"] = finite(typed[c.label]) if c.label else null
        made["endless"] = is_infinite(typed[c.label]) if c.label else ibis.literal(False)
        made["score"] = finite(typed[c.score]) if c.score else null
        made["propensity"] = typed[c.propensity] if c.propensity else null
        made["decided"] = typed[c.accepted] if c.accepted else null
        rows = typed.select(**made, **{name: typed[name] for name in (ROW, FILE) if name in typed.columns})
        clips = {
            f"x{c.features.index(name)}": rows[f"f{c.features.index(name)}"].clip(low, high)
            for name, (low, high) in self.settings.clip.items()
        }
        return rows.mutate(**clips) if clips else rows

    def _scored(self, rows: Any) -> Any:
        """Add the linear model's score if the rows lack a score and one is needed."""
        if self.columns.score or self.models is None or not self.asks_score:
            return rows
        weights, offset = self.models
        place = {f"w{j}": weights[:, j] for j in range(self.width)} | {"offset": offset}
        models = small_table({"listed": self.deployments.names, **place}, engine_of(rows))
        met = rows.left_join(models, rows.deployment == models.listed)
        score = functools.reduce(operator.add, (met[f"f{j}"] * met[f"w{j}"] for j in range(self.width)), met.offset)
        return met.mutate(score=finite(score)).drop("listed", "offset", *(f"w{j}" for j in range(self.width)))

    @property
    def asks_score(self) -> bool:
        """Whether the model's score is needed: for decisions, or for who has no label."""
        return self.settings.decision.threshold is not None or self.columns.label is not None

    def _judged(self, rows: Any) -> Any:
        decision = self.settings.decision
        known = rows.client.notnull() & rows.deployment.isin(list(self.deployments.names)).fill_null(False)
        good = functools.reduce(operator.and_, (is_finite(rows[f"f{j}"]) for j in range(self.width)))
        side: Any = ibis.null("float64")
        if decision.threshold is not None and (self.columns.score or self.rule is not None):
            threshold = decision.threshold if self.columns.score or self.rule is None else self.rule[2]
            inside = rows.score >= threshold if decision.accept == "above" else rows.score <= threshold
            side = truth(inside)
        accepted = rows.decided if self.columns.accepted else side
        rows = rows.mutate(known=known, good=good, side=side, accepted=accepted)
        rows = rows.mutate(fit=rows.known & rows.good & ~rows.endless, has=rows.label.notnull())
        if self.strata == 1:
            return rows.mutate(stratum=ibis.literal(0, "int64"))
        a, s = (rows[name].fill_null(DECISIONS - 1.0).cast("int64") for name in ("accepted", "side"))
        return rows.mutate(stratum=DECISIONS * a + s)

    def always(self, rows: Any) -> Any:
        """The people whom every deployed model accepts."""
        assert self.rule is not None
        weights, offset, threshold = self.rule
        for w, o in zip(weights, offset, strict=True):
            score = functools.reduce(operator.add, (rows[f"f{j}"] * float(w[j]) for j in range(self.width)), float(o))
            inside = score >= threshold if self.settings.decision.accept == "above" else score <= threshold
            rows = rows.filter(inside)
        return rows

"""`effect`: the design with the weakest assumptions among those that the data identify."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from performative._base.arguments import checked
from performative._base.checks import nearest
from performative.audit.causes.breaks import breaks
from performative.audit.causes.cause import Cause
from performative.audit.causes.estimate import Estimate, Refused
from performative.audit.causes.overlap import overlap
from performative.audit.causes.randomized import randomized
from performative.audit.causes.table import Table, read_table
from performative.audit.causes.threshold import threshold as at_threshold
from performative.audit.causes.words import DESIGNS, WORDS
from performative.findings import Finding

_RUN: dict[str, Callable[..., Estimate]] = {
    "randomized": randomized,
    "threshold": at_threshold,
    "breaks": breaks,
    "overlap": overlap,
}


@checked
def effect(
    frame: Any,
    *,
    outcome: str,
    decision: str | None = None,
    score: str | None = None,
    threshold: float | None = None,
    propensity: str | None = None,
    randomized: str | None = None,
    deployment: str | None = None,
    client: str | None = None,
    time: str | None = None,
    features: Sequence[str] = (),
    design: str = "auto",
    level: float = 0.95,
    outcome_model: Any = None,
    propensity_model: Any = None,
    seed: int = 0,
) -> Cause:
    """Estimate from logs what the model's decision, or its deployment, does to an outcome; state the assumption.

    Args:
        frame: one row per person and decision (pandas, Polars or PyArrow)
        outcome: numeric column: a label, or a feature that people may change; empty if unknown
        decision: column of 0 and 1
        score, threshold: column of the score, and the value at and above which the decision is 1 (or 0)
        propensity: column of the logged probability of decision = 1
        randomized: column of 0 and 1: whose decision was randomized (a randomized share, exploration)
        deployment, client, time: columns: which model was in force, where, in which period
        features: columns known before the decision
        design: "auto", or "randomized", "threshold", "breaks", "overlap"
        level: of the interval
        outcome_model, propensity_model: scikit-learn estimators for "overlap"
        seed: for the folds of "overlap"

    "auto" uses the first design that the data identify: a randomized share, logged propensities, a threshold,
    deployment breaks with controls, and last, features that predict the decision. A design whose assumption the data
    contradict is refused, with the reason; if all are, the result says that the effect is not identified. An
    assumption that the data cannot contradict is not necessarily true: the result states it.
    """
    if design not in ("auto", *DESIGNS):
        raise ValueError(f"effect: unknown design {design!r}.{nearest(str(design), ('auto', *DESIGNS))}")
    if not 0 < level < 1:
        raise ValueError(f"effect: level must lie between 0 and 1; got {level!r}.")
    table = read_table(
        frame, outcome, decision, score, threshold, propensity, randomized, deployment, client, time, features
    )
    options = {"outcome_model": outcome_model, "propensity_model": propensity_model, "seed": seed}
    return cause_of(table, outcome, design, level, options)


def causes_of(frame: Any, columns: Mapping[str, Any], outcomes: Sequence[str], level: float = 0.95) -> dict[str, Cause]:
    """`effect` on each of several outcomes: labels, and features that people may change.

    Args:
        columns: the other arguments of `effect`; outcomes are removed from its features
    """
    found = {}
    for name in outcomes:
        told = {**columns, "features": [one for one in columns.get("features", ()) if one != name]}
        # Features that the decision may move must not be controlled for when estimating what it moves.
        told["features"] = [one for one in told["features"] if one not in outcomes]
        found[name] = effect(frame, outcome=name, level=level, **told)
    return found


def cause_of(
    table: Table, outcome: str, design: str = "auto", level: float = 0.95, options: Mapping[str, Any] | None = None
) -> Cause:
    """The result for a table that has been read; see `effect`."""
    order = _order(table) if design == "auto" else (design,)
    refusals: dict[str, Finding] = {}
    used, found = None, None
    for name in order:
        extra = dict(options or {}) if name == "overlap" else {}
        try:
            found, used = _RUN[name](table, level, **extra), name
        except Refused as refusal:
            refusals[name] = refusal.finding
            continue
        break
    for name in DESIGNS:
        if name not in refusals and name != used:
            asked = used is None or design != "auto"
            refusals[name] = (
                Finding("refused.not-asked", "info", {}) if asked
                else Finding("unused.not-tried", "info", {"designs": used})
            )  # fmt: skip
    spread = float(np.nanstd(table.outcome)) if np.isfinite(table.outcome).sum() > 1 else np.nan
    why = {name: WORDS.say(refusals[name]) for name in DESIGNS if name in refusals}
    notes = tuple(refusals[name] for name in DESIGNS if name in refusals)
    if found is None or used is None:
        told = Finding("effect.none", "warning", {"outcome": outcome})
        return Cause(
            outcome, None, np.nan, np.nan, (-np.inf, np.inf), np.nan, np.nan, level, 0, {}, "", why, (told, *notes)
        )
    in_sd = found.estimate / spread if spread > 0 else np.nan
    facts = {
        "outcome": outcome, "design": used, "on": found.on, "estimate": found.estimate, "lower": found.lower,
        "upper": found.upper, "level": level, "p_value": found.p_value, "in_sd": in_sd,
    }  # fmt: skip
    kind = f"{used}-{found.diagnostics['propensity']}" if used == "overlap" else used
    assumption = Finding(f"assumption.{kind}", "info", {})
    told = Finding("effect.found", "info", facts)
    return Cause(
        outcome, used, found.estimate, found.standard_error, (found.lower, found.upper), found.p_value, in_sd, level,
        found.rows, found.diagnostics, WORDS.say(assumption), why, (told, assumption, *found.cautions, *notes),
    )  # fmt: skip


def _order(table: Table) -> tuple[str, ...]:
    """By strength of assumptions: logged propensities are an experiment, estimated ones are not."""
    if table.propensity is not None:
        return ("randomized", "overlap", "threshold", "breaks")
    return ("randomized", "threshold", "breaks", "overlap")

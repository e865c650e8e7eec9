"""Which rows to use if labels are missing, or if the logs contain only accepted people."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from performative._base.messages import coded
from performative.audit.log import ClientLog
from performative.audit.outcomes import Outcomes, Plan
from performative.audit.selection import Selection, judge, plans
from performative.audit.summaries import Summaries

# If at most this share of labels is missing at random, "auto" drops the rows.
FEW_MISSING = 0.01
# Moments of rows under a plan.
Again = Callable[[Plan], Outcomes]


def choose_rows(
    seen: Summaries, notes: list[str], again: Again
) -> tuple[bool, bool, Selection | None, dict[str, ClientLog]]:
    """Whether to use only labeled rows, whether logs include the label, how labels are missing, and logs of the label.

    Labeled rows are taken as representative only if there is no sign that the model decides who has a label.
    """
    if seen.columns.label is None:
        return True, False, None, {}
    missing = seen.unlabeled.rows
    if not missing:
        return True, True, None, {}
    total = seen.labeled.rows + missing
    share, how = missing / total, seen.settings.missing_labels
    found = judge(seen)
    without = f"{missing} of {total} rows ({share:.1%}) have no label: the features of all rows are tested"
    if how == "features":
        notes.append(f"{without}, and the label is left out, as set by [labels] missing.")
        return False, False, dataclasses.replace(found, method="left out"), {}
    if found.kind == "chance" or (found.kind == "people" and how == "labeled"):
        as_they_are = dataclasses.replace(found, method="labeled", coverage=1.0)
        if how == "labeled" or share <= FEW_MISSING:
            notes.append(
                f"DROPPED {missing} of {total} rows: they have no label. The results are about people with a label."
            )
            return True, True, as_they_are, {}
        notes.append(
            f"{without}, the label on the rows that have one. There is no sign that having a label depends on "
            f"features, score or acceptance (p = {found.p_value:.2g}); it may still depend on the outcome itself."
        )
        return False, False, as_they_are, {}
    if found.kind == "people":
        why = f"who has a label depends on {found.by} (p = {found.p_value:.1g})"
        notes.append(f"{without}. The label is not tested, because {why}.")
        return False, False, dataclasses.replace(found, why=why), {}
    notes.append(f"{without}.")
    if how == "labeled":
        notes.append('[labels] missing = "labeled" was ignored: the model decided who has a label.')
    made, why = plans(seen)
    found = dataclasses.replace(found, why=why)
    for plan in made:
        outcomes = again(plan)
        found = found.using(plan, outcomes)
        if found.method != "withheld":
            return False, False, found, outcomes.logs
    return False, False, found, {}


def of_accepted(
    seen: Summaries, clients: dict[str, ClientLog], again: Again, notes: list[str]
) -> tuple[dict[str, ClientLog], str]:
    """Correct logs of the accepted alone: people whom every model accepts are comparable under all of them."""
    why = "whom every deployed model accepts is unknown: that requires theta_<feature> and [decision] threshold"
    if seen.rule is not None:
        found = again(Plan("always", "accepted by every deployed model"))
        if found.coverage >= 1:
            return clients, ""
        why = found.why
        if not why:
            notes.append(
                "Nobody was rejected in these logs, so they contain only the accepted. The results are about people "
                f"whom every deployed model accepts: {found.coverage:.0%} of the rows or more."
            )
            return {name: log for name, log in found.logs.items() if name in clients}, ""
    return clients, coded(
        "rows-selected-by-model",
        "Every row belongs to someone who was accepted, so the rejected are missing: the rows change when the model "
        f"does, whether or not anybody reacts, and {why}. Log everyone who applied.",
    )


def without_late(seen: Summaries) -> tuple[Summaries, str]:
    """Drop the last deployments if they have no labels yet, with a note.

    Outcomes take time: labels that have not arrived yet were not selected by the model.
    """
    many = len(seen.deployments.names)
    has, lacks = (np.bincount(own.deployment, own.count, minlength=many) for own in (seen.labeled, seen.unlabeled))
    with_rows = np.flatnonzero(has + lacks)
    late: list[int] = []
    while len(with_rows) and has[with_rows[-1]] == 0:
        late.append(int(with_rows[-1]))
        with_rows = with_rows[:-1]
    if not late or not len(with_rows) or seen.columns.label is None or seen.settings.delayed == "keep":
        return seen, ""
    if seen.settings.missing_labels == "features":
        return seen, ""
    names = ", ".join(repr(seen.deployments.names[t]) for t in late[::-1][:5])

    def early(part: Any) -> Any:
        use = ~np.isin(part.deployment, late)
        arrays = [field.name for field in dataclasses.fields(part) if isinstance(getattr(part, field.name), np.ndarray)]
        return dataclasses.replace(part, **{name: getattr(part, name)[use] for name in arrays})

    note = (
        f"DROPPED {int(lacks[late].sum())} rows of {names}: they have no labels yet. To test their features without "
        'labels, set [labels] delayed = "keep" in audit.toml.'
    )
    scores = (seen.scores[0], early(seen.scores[1]))
    return dataclasses.replace(
        seen, unlabeled=early(seen.unlabeled), scores=scores, incomplete=early(seen.incomplete)
    ), note

"""What was dropped or is unknown, in sentences."""

from performative._base.checks import nearest
from performative.audit.deployments import Deployments
from performative.audit.rates import Censoring
from performative.audit.roles import Columns
from performative.audit.scoring import INTERCEPT
from performative.audit.summaries import Summaries


def dropped_notes(seen: Summaries) -> list[str]:
    """Dropped rows, by reason."""
    notes = []
    for reason, count in seen.dropped.items():
        if not count:
            continue
        line = f"DROPPED {count} of {seen.rows} rows: they have {reason}"
        if reason == "a deployment that is not listed":
            name, _ = seen.unknown.most_common(1)[0]
            line += f" ({listed([n for n, _ in seen.unknown.most_common()])}).{nearest(name, seen.deployments.names)}"
        elif reason == "an empty or infinite feature":
            worst = ", ".join(f"{name} {lost}" for name, lost in seen.empty.most_common(5) if lost)
            line += f" ({worst})."
        else:
            line += "."
        notes.append(line)
    cells, rows = seen.suppressed
    if cells:
        notes.append(f"SUPPRESSED {cells} cells with too few people, at least {rows} rows.")
    if seen.promise is not None:
        epsilon, delta = seen.promise
        notes.append(
            f"Noise gives each file ({epsilon:g}, {delta:g})-differential privacy under adding or removing a row. The "
            "standard errors of all means include it; relations between features and label are not tested."
        )
    return notes


def listed(names: list[str]) -> str:
    """The first few names, and how many more there are."""
    rest = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(repr, names[:5])) + rest


def model_notes(features: tuple[str, ...], deployments: Deployments, place: dict[str, int]) -> list[str]:
    """Parameters without a feature, and features without a parameter."""
    used = set(place.values())
    alone = [p for i, p in enumerate(deployments.parameters) if i not in used and p != INTERCEPT]
    notes = []
    if place and alone:
        notes.append(
            f"Parameters without a feature of that name: {', '.join(alone)}; set [model] parameters to match them."
        )
    without = [f for f in features if f not in place]
    if place and without:
        notes.append(f"Features without a parameter, so the model does not use them: {', '.join(without)}.")
    return notes


def group_notes(seen: Summaries, columns: Columns, censoring: Censoring) -> list[str]:
    """What is unknown about decisions and groups."""
    notes = []
    if seen.no_group:
        notes.append(f"{seen.no_group} rows have no group and are excluded from the rates by group.")
    if seen.undecided and seen.decides:
        notes.append(f"{seen.undecided} rows do not say whether the person was accepted.")
    if seen.decides is None:
        notes.append(
            "It is unknown who was accepted: log `accepted`, or set [decision] threshold and log `score` or theta."
        )
    if columns.label and seen.odd:
        notes.append("Labels are not 0 and 1, so nobody counts as qualified: there are no TPR and TNR.")
    if censoring.censored and columns.label and not seen.odd:
        notes.append(f"WARNING: {censoring.sentence()}")
    return notes

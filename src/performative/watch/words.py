"""The sentences of a watch."""

import math
from typing import Any

from performative.findings import Words

_LAWS = {
    "none": "a level that does not drift",
    "linear": "a level with a linear trend",
    "walk": "a level that walks at random",
    "smooth": "a level that walks, bends or swings",
    "any": "any drift at all, since only what chance added to the models counts",
}


def _number(value: float) -> str:
    if value is None or math.isnan(value):
        return "not known"
    return ("" if value > 0 else "-") + "unlimited" if math.isinf(value) else f"{value:.3g}"


def _evidence(value: float) -> str:
    return f"{value:.3g}" if value >= 0.001 else "below 0.001"


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def _reaction(evidence: float, looks: int, alpha: float, at: int, **_: Any) -> str:
    return (
        f"The data react to the deployed models: the evidence reached {1 / alpha:.3g} at look {at} "
        f"(now {_evidence(evidence)}, after {looks} looks)."
    )


def _unknown(evidence: float, looks: int, alpha: float, **_: Any) -> str:
    return (
        f"No reaction was shown so far: the evidence is {_evidence(evidence)} after {looks} looks, "
        f"and {1 / alpha:.3g} would show one."
    )


def _assumed(drift: str, alpha: float) -> str:
    return (
        f"Allowed for beside the models: {_LAWS[drift]}. With no reaction, an alarm is ever raised with a chance of "
        f"at most {alpha:.3g}, however often one looks; each interval leaves out the truth at any look with a chance "
        "of at most that."
    )


def _gap(most: str, least: str, value: float, low: float, high: float, wide: bool) -> str:
    end = "" if wide else "; the two may be equal"
    return (
        f"Group {most!r} is accepted more often than {least!r}, by {100 * value:.1f} points ({100 * low:.1f} to "
        f"{100 * high:.1f}){end}."
    )


WORDS = Words(
    {
        "verdict.reaction": _reaction,
        "verdict.unknown": _unknown,
        "client.reacts": "Client {client!r} reacts by itself (look {look}).",
        "reaction.strength": "{client}: {column} moves by {value:number} per unit of theta_{parameter} ({low:number} "
        "to {high:number}).",
        "reaction.at-most": "No column moves by more than {most:number} per unit of a parameter.",
        "advice.explore": "Does not know yet: for {blind} of {pairs} pairs of column and parameter the models moved "
        "too little beside what drift may do. Move models by chance (explore_<name>): that tells them apart.",
        "forecast.settles": "Retraining as it was done here settles: each deployment leaves {contraction:number} of "
        "the distance ({low:number} to {high:number}).",
        "forecast.runs-away": "Retraining as it was done here runs away: each deployment multiplies the distance by "
        "{contraction:number} ({low:number} to {high:number}).",
        "forecast.unknown": "Where retraining leads is not known yet: the contraction is {contraction:number} "
        "({low:number} to {high:number}) after {models} changes of the model.",
        "people.loss": "The mean loss under the models as deployed is {value:number} ({low:number} to {high:number}; "
        "{kind}).",
        "people.gap": _gap,
        "alarm.loss": "The mean loss is above {limit:number} (look {look}).",
        "alarm.gap": "The gap between groups is above {limit:number} (look {look}).",
        "input.quarantined": lambda counts, last: (
            f"In quarantine: {_listed(counts)}. The last: {last['batch']}: {last['message']}"
        ),
        "input.dropped": lambda counts: f"Rows dropped: {', '.join(f'{n} with {why}' for why, n in counts.items())}.",
        "input.late": "{rows} rows came late: they count for losses and gaps, not for evidence; {too_late} batches "
        "came too late.",
        "note.assumed": _assumed,
    },
    number=_number,
)

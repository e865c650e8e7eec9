"""The sentences of a watch."""

import math
from typing import Any

from performative.findings import Words

_LAWS = {
    "none": "no drift",
    "linear": "a linear trend",
    "walk": "a random walk",
    "smooth": "smooth drift (walks, bends and waves)",
    "any": "any drift at all, since only the random part of the models counts",
}


def _number(value: float) -> str:
    if value is None or math.isnan(value):
        return "unknown"
    return ("" if value > 0 else "-") + "infinity" if math.isinf(value) else f"{value:.3g}"


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
        f"No reaction has been shown so far: the evidence is {_evidence(evidence)} after {looks} looks; "
        f"{1 / alpha:.3g} would show one."
    )


def _assumed(drift: str, alpha: float) -> str:
    return (
        f"Assumed besides the models: {_LAWS[drift]}. Without a reaction, the probability that one is ever reported "
        f"is at most {alpha:.3g}, however often you look; the same holds for the probability that an interval ever "
        "misses the truth."
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
        "client.reacts": "Client {client!r} alone reacts (look {look}).",
        "reaction.strength": "{client}: {column} moves by {value:number} per unit of theta_{parameter} ({low:number} "
        "to {high:number}).",
        "reaction.at-most": "No column moves by more than {most:number} per unit of a parameter.",
        "advice.explore": "Unknown so far: for {blind} of {pairs} pairs of column and parameter the models moved too "
        "little compared with possible drift. Move models at random (explore_<name>) to tell reaction and drift apart.",
        "forecast.settles": "Retraining as done here settles: each deployment leaves {contraction:number} of the "
        "distance ({low:number} to {high:number}).",
        "forecast.runs-away": "Retraining as done here diverges: each deployment multiplies the distance by "
        "{contraction:number} ({low:number} to {high:number}).",
        "forecast.unknown": "It is not yet known where retraining leads: the contraction is {contraction:number} "
        "({low:number} to {high:number}) after {models} model changes.",
        "people.loss": "The mean loss under the deployed models is {value:number} ({low:number} to {high:number}; "
        "{kind}).",
        "people.gap": _gap,
        "alarm.loss": "The mean loss is above {limit:number} (look {look}).",
        "alarm.gap": "The gap between groups is above {limit:number} (look {look}).",
        "input.quarantined": lambda counts, last: (
            f"Quarantined: {_listed(counts)}. The last: {last['batch']}: {last['message']}"
        ),
        "input.dropped": lambda counts: f"Rows dropped: {', '.join(f'{n} with {why}' for why, n in counts.items())}.",
        "input.late": "{rows} rows arrived late: they enter losses and gaps, not the evidence; {too_late} batches "
        "arrived too late.",
        "note.assumed": _assumed,
    },
    number=_number,
)

"""What recorded quantities are called, and which of them belong together."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from performative.history import History

LABELS = {
    "distance_to_stable": "distance to the stable point",
    "distance_to_optimal": "distance to the optimal point",
    "performative_risk": "performative risk",
    "decoupled_risk": "decoupled risk",
    "risk_spread": "spread of the risk between clients",
    "consensus": "consensus error",
    "time": "simulated time",
    "uploads": "uploads",
    "samples": "samples drawn",
    "kept": "samples kept",
    "communications": "communications",
    "clipped": "gradients clipped",
    "rejected": "gradients rejected (not finite)",
    "clipped_updates": "updates clipped",
    "rejected_updates": "updates rejected (not finite)",
    "nonfinite_updates": "updates left out (not finite)",
    "epsilon": "epsilon spent",
}
_GROUPS = {
    "Distance to the stable and the optimal point": ("distance_to_stable", "distance_to_optimal"),
    "Risk": ("performative_risk", "decoupled_risk", "risk_spread"),
    "Agreement of the clients": ("consensus",),
    "Privacy spent": ("epsilon",),
}
_LEVELS, _TOTALS = "Other levels", "Running totals"
# By these settings of a sweep are compared, the first that was recorded first.
SCORES = ("distance_to_stable", "performative_risk", "distance_to_optimal", "decoupled_risk", "consensus")


# Running totals that others can be drawn against.
_COSTS = ("time", "uploads", "samples", "communications")


def costs(found: dict[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """{in words: (rounds, mean over repeats)} of what a run spent; a repeat that became non-finite is left out."""
    spent = {}
    for name in _COSTS:
        if name in found:
            rounds, values = found[name]
            sound = values[np.all(np.isfinite(values), axis=1)]
            if len(sound):
                spent[label(name)] = (rounds, sound.mean(axis=0))
    return spent


def label(name: str, history: "History | None" = None) -> str:
    """In words; a metric of one's own by the label and unit that `history` has of it."""
    facts = {} if history is None else history.meta.get("metrics", {}).get(name, {})
    words = facts.get("label") or LABELS.get(name, name.replace("_", " "))
    return f"{words} [{facts['unit']}]" if facts.get("unit") else words


def recorded(history: "History") -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """{name: (rounds, values [repeats, records])} of all that has a value and is not zero throughout."""
    found = {}
    for name, values in {**history.records, **history.risks}.items():
        rounds = np.asarray(history.risk_rounds if name in history.risks else history.rounds)
        values = np.asarray(values, np.float64)
        if values.size and np.any(np.isfinite(values) & (values != 0)):
            found[name] = (rounds, values)
    return found


def is_total(name: str, values: np.ndarray, history: "History | None" = None) -> bool:
    """Whether it counts up from zero in every repeat, as a sum over rounds does; of one's own metrics by kind."""
    if history is not None and name in history.meta.get("metrics", {}):
        return history.meta["metrics"][name]["kind"] == "total"
    finite = np.where(np.isfinite(values), values, 0.0)
    known = any(name in names for names in _GROUPS.values())
    return not known and bool(np.all(values[:, 0] == 0) and np.all(np.diff(finite, axis=1) >= 0))


def groups(found: dict[str, tuple[np.ndarray, np.ndarray]], history: "History | None" = None) -> dict[str, list[str]]:
    """Names under headings: known ones first, then other levels, then running totals."""
    sorted_in: dict[str, list[str]] = {}
    for head, names in _GROUPS.items():
        sorted_in[head] = [name for name in names if name in found]
    rest = [name for name in found if not any(name in names for names in _GROUPS.values())]
    sorted_in[_LEVELS] = [name for name in rest if not is_total(name, found[name][1], history)]
    sorted_in[_TOTALS] = [name for name in rest if is_total(name, found[name][1], history)]
    return {head: names for head, names in sorted_in.items() if names}


def wants_log(name: str, values: np.ndarray, history: "History | None" = None) -> bool:
    """Positive and over more than a factor of ten; running totals grow by themselves."""
    finite = values[np.isfinite(values)]
    if not finite.size or finite.min() <= 0 or is_total(name, values, history) or name == "epsilon":
        return False
    return name.startswith("distance") or bool(finite.max() > 10 * finite.min())

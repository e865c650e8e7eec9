"""Names of recorded quantities, and their grouping."""

from typing import TYPE_CHECKING

import numpy as np

from performative.plotting import COSTS, is_total, label_of

if TYPE_CHECKING:
    from performative.history import History

_GROUPS = {
    "Distance to the stable and the optimal point": ("distance_to_stable", "distance_to_optimal"),
    "Risk": ("performative_risk", "decoupled_risk", "risk_spread"),
    "Agreement between clients": ("consensus",),
    "Privacy spent": ("epsilon",),
}
_LEVELS, _TOTALS = "Other quantities", "Running totals"
# The settings of a sweep are compared by the first of these that was recorded.
SCORES = ("distance_to_stable", "performative_risk", "distance_to_optimal", "decoupled_risk", "consensus")


def costs(found: dict[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """{label: (rounds, mean over repeats)} of a run's costs; repeats that became non-finite are excluded."""
    spent = {}
    for name in COSTS:
        if name in found:
            rounds, values = found[name]
            sound = values[np.all(np.isfinite(values), axis=1)]
            if len(sound):
                spent[label_of(name)] = (rounds, sound.mean(axis=0))
    return spent


def recorded(history: "History") -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """{name: (rounds, values [repeats, records])} of all quantities with finite values that are not all zero."""
    found = {}
    for name, values in {**history.records, **history.risks}.items():
        rounds = np.asarray(history.risk_rounds if name in history.risks else history.rounds)
        values = np.asarray(values, np.float64)
        if values.size and np.any(np.isfinite(values) & (values != 0)):
            found[name] = (rounds, values)
    return found


def groups(found: dict[str, tuple[np.ndarray, np.ndarray]], history: "History | None" = None) -> dict[str, list[str]]:
    """Names under headings: known ones first, then other quantities, then running totals."""
    sorted_in: dict[str, list[str]] = {}
    for head, names in _GROUPS.items():
        sorted_in[head] = [name for name in names if name in found]
    rest = [name for name in found if not any(name in names for names in _GROUPS.values())]
    sorted_in[_LEVELS] = [name for name in rest if not is_total(name, found[name][1], history)]
    sorted_in[_TOTALS] = [name for name in rest if is_total(name, found[name][1], history)]
    return {head: names for head, names in sorted_in.items() if names}

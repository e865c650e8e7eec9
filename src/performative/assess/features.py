"""Which columns people move in response, and model coefficients in the units of the table."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from performative.findings import Plain
from performative.problem import Problem


@dataclasses.dataclass(frozen=True)
class Feature(Plain):
    """One column of the table.

    Attributes:
        share: fraction of the drop in score due to this column, theta_j^2 over their sum; 0 if nobody can change it
        moves: by how much people who respond to the static model change it, in the column's own unit
        static, stable, optimal: coefficient per unit of the column; None if there is no such model
        per_spread: coefficient of the static model per spread of the column
    """

    name: str
    movable: bool
    share: float
    moves: float
    spread: float
    per_spread: float
    static: float | None
    stable: float | None
    optimal: float | None


def features_of(problem: Problem, models: Mapping[str, Any], strength: float) -> tuple[Feature, ...]:
    """All columns, those with the largest share first, and the intercept last. `models` must contain "static"."""
    columns: Any = problem.columns
    population: Any = problem.population
    spread, center = np.asarray(columns.spread), np.asarray(columns.center)
    movable = np.isin(np.arange(len(spread)), population.features)
    static = np.asarray(models["static"])
    fall = np.where(movable, np.square(static[: len(spread)]), 0.0)
    raw = {name: _in_units(models.get(name), center, spread) for name in ("static", "stable", "optimal")}
    made = []
    for j, name in enumerate(columns.names[: len(spread)]):
        values = {kind: None if theta is None else float(theta[j]) for kind, theta in raw.items()}
        moves = float(-strength * static[j] * spread[j]) if movable[j] else 0.0
        share = float(fall[j] / fall.sum()) if fall.sum() > 0 else 0.0
        made.append(Feature(name, bool(movable[j]), share, moves, float(spread[j]), float(static[j]), **values))
    made.sort(key=lambda one: (-one.share, -abs(one.per_spread)))
    rest = {kind: None if theta is None else float(theta[-1]) for kind, theta in raw.items()}
    return (*made, Feature("intercept", False, 0.0, 0.0, 1.0, float(static[-1]), **rest))


def _in_units(theta: Any, center: np.ndarray, spread: np.ndarray) -> np.ndarray | None:
    """theta.(raw - center) / spread + b as coefficients of raw, with the intercept last."""
    if theta is None:
        return None
    values = np.asarray(theta, np.float64)
    slopes = values[: len(spread)] / spread
    return np.append(slopes, values[-1] - float(slopes @ center))

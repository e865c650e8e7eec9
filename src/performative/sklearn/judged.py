"""A fitted classifier from the perspective of the people it judges: score, decision, and columns they can change."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

# Maximum number of rows per call of the model: repeated rows of a wide frame fill the memory.
_AT_ONCE = 200_000


@dataclasses.dataclass(frozen=True, eq=False)
class Judge:
    """A binary classifier whose `desired` class people want to be assigned.

    Attributes:
        kind: where scores of the desired class come from, "decision_function" or else "predict_proba"; None if the
            model has neither
        threshold: scores above it mean the desired class; NaN if no single threshold matches the decisions
    """

    model: Any
    X: Any
    columns: tuple[int, ...]
    names: tuple[str, ...]
    desired: Any
    kind: str | None
    threshold: float = float("nan")

    @property
    def movable(self) -> Float[np.ndarray, "n k"]:
        """The columns that people can change, as numbers."""
        if hasattr(self.X, "iloc"):
            return np.column_stack([np.asarray(self.X.iloc[:, j], np.float64) for j in self.columns])
        return np.asarray(self.X[:, list(self.columns)], np.float64)

    def scores(self, who: np.ndarray, values: Float[np.ndarray, "r k"]) -> Float[np.ndarray, " r"]:
        """Scores of the people `who` if they show `values`."""
        return self._each(who, values, self._score)

    def accepted(self, who: np.ndarray, values: Float[np.ndarray, "r k"]) -> Bool[np.ndarray, " r"]:
        """Whether they are assigned the desired class."""
        return self._each(who, values, lambda rows: np.asarray(self.model.predict(rows)) == self.desired)

    def _score(self, rows: Any) -> np.ndarray:
        out = np.asarray(getattr(self.model, str(self.kind))(rows), np.float64)
        place = list(self.model.classes_).index(self.desired)
        if self.kind == "predict_proba":
            return out[:, place]
        return out if place == 1 else -out

    def _each(self, who: np.ndarray, values: np.ndarray, ask: Callable[[Any], np.ndarray]) -> np.ndarray:
        parts = []
        for first in range(0, len(who), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            parts.append(ask(self._rows(who[part], values[part])))
        return np.concatenate(parts)

    def _rows(self, who: np.ndarray, values: np.ndarray) -> Any:
        """People's rows with other values in the columns that they can change."""
        if not hasattr(self.X, "iloc"):
            rows = np.array(self.X[who])
            rows = rows if rows.dtype == object else rows.astype(np.promote_types(rows.dtype, np.float64), copy=False)
            rows[:, list(self.columns)] = values
            return rows
        frame = self.X.iloc[who].reset_index(drop=True)
        for i, j in enumerate(self.columns):
            frame.isetitem(j, values[:, i])  # by position: names need not be strings
        return frame


def judge_of(model: Any, X: Any, columns: tuple[int, ...], names: tuple[str, ...], desired: Any) -> Judge:
    """Wrap a model; its threshold is one at which scores and decisions agree on the rows of X."""
    kind = next((name for name in ("decision_function", "predict_proba") if hasattr(model, name)), None)
    made = Judge(model, X, columns, names, desired, kind)
    if kind is None:
        return made
    who, values = np.arange(len(X)), made.movable
    scores, accepted = made.scores(who, values), made.accepted(who, values)
    usual = 0.0 if kind == "decision_function" else 0.5
    low = float(scores[~accepted].max()) if np.any(~accepted) else -np.inf
    high = float(scores[accepted].min()) if np.any(accepted) else np.inf
    if low <= usual <= high:
        return dataclasses.replace(made, threshold=usual)
    if low < high and np.isfinite(low) and np.isfinite(high):
        return dataclasses.replace(made, threshold=(low + high) / 2)
    return made

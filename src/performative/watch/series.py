"""One series of means under deployed models: a client's, or the models' own from look to look."""

from typing import Any, NamedTuple

import numpy as np

from performative.watch import evidence, randomized
from performative.watch.guesses import Guesses, guesses
from performative.watch.intervals import invert


class Strength(NamedTuple):
    """[d, q] estimates, their confidence sequences, and log E against 0."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    log_evidence: np.ndarray


class Series:
    """Evidence and strengths of one series.

    Args:
        drift: as in `guesses`; with "any" only the random part of the models counts
    """

    def __init__(self, drift: str, columns: int, parameters: int):
        self.drift, self.columns, self.parameters = drift, columns, parameters
        self.sums = None if drift == "any" else evidence.begin(drift, columns, parameters)
        self.signs = randomized.begin(columns, parameters)
        self.told: Guesses = guesses(drift)
        self.first: dict[str, Any] = {}
        self.last = 0
        self.looks = 0
        self.rows = 0
        self._known: np.ndarray | None = None  # log E as of the last look

    def look(self, at: int, count: int, mean: np.ndarray, theta: np.ndarray, explored: np.ndarray | None) -> None:
        """Add a look: the number of the batch, its row count, their means, and the model that they faced."""
        if not self.first:
            self.first = {"mean": mean.tolist(), "theta": theta.tolist(), "count": count, "at": at}
            self.first["explored"] = explored is not None
        origin = self.first
        y, move = mean - np.asarray(origin["mean"]), theta - np.asarray(origin["theta"])
        if self.sums is not None:
            gap = float(at - self.last) if self.looks else 0.0
            noise, time = origin["count"] / count, np.float64(at - origin["at"])
            self.sums = evidence.look(self.sums, self.told, y, move, noise, time, gap)
        if explored is not None:
            self.signs = randomized.look(self.signs, y, explored)
        self.last, self.looks, self.rows = at, self.looks + 1, self.rows + count
        self._known = None

    def log_evidence(self) -> np.ndarray:
        """[d, q] log of E: the mean of both kinds of evidence if the first look has random moves too.

        Either both kinds from the first look on, or only one for good: adding a kind later would be a second chance of
        a false alarm.
        """
        if self._known is None:
            self._known = self._evidence(0.0)
        return self._known

    def _evidence(self, strength: np.ndarray | float) -> np.ndarray:
        kinds = []
        if self.sums is not None:
            kinds.append(evidence.log_evidence(self.sums, strength))
        if self.sums is None or self.first.get("explored"):
            kinds.append(randomized.log_evidence(self.signs, strength))
        return np.asarray(np.logaddexp.reduce(np.stack(kinds), axis=0) - np.log(len(kinds)))

    def strength(self, alpha: float) -> Strength:
        """Estimates and sequences; infinite if these models cannot tell yet."""
        value, error = randomized.estimate(self.signs)
        if self.sums is not None:
            ours, its_error = evidence.estimate(self.sums)
            value, error = np.where(np.isnan(ours), value, ours), np.where(np.isnan(ours), error, its_error)
        low, high = invert(self._evidence, value, error, alpha)
        return Strength(value, low, high, self.log_evidence())

    def to_dict(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Plain facts, and arrays by name."""
        arrays = {f"signs.{name}": np.asarray(value) for name, value in self.signs._asdict().items()}
        if self.sums is not None:
            arrays |= {f"sums.{name}": np.asarray(value) for name, value in self.sums._asdict().items()}
        names = ("drift", "columns", "parameters", "first", "last", "looks", "rows")
        return {name: getattr(self, name) for name in names}, arrays

    @classmethod
    def from_dict(cls, told: dict[str, Any], arrays: dict[str, np.ndarray]) -> "Series":
        made = cls(told["drift"], told["columns"], told["parameters"])
        for name in ("first", "last", "looks", "rows"):
            setattr(made, name, told[name])
        signs: dict[str, Any] = {name: arrays[f"signs.{name}"] for name in randomized.Signs._fields}
        made.signs = randomized.Signs(**signs | {"looks": int(signs["looks"])})
        if made.sums is not None:
            sums: dict[str, Any] = {name: arrays[f"sums.{name}"] for name in evidence.Sums._fields}
            made.sums = evidence.Sums(**sums | {"looks": float(sums["looks"])})
        return made

"""What a callback receives."""

import dataclasses
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class News:
    """The records since the last call; the first call begins with the start, or after a resume with all stored records.

    Attributes:
        rounds: the round of each new record, [new]
        records: {name: [repeats, new]}, totals accumulated so far; [settings, repeats, new] in a sweep
        risks: {name: [repeats]} as measured at `round`; empty if not measured
        theta: the model at `round`, [repeats, ...] per leaf
        round: completed rounds
        total: requested rounds
        seconds: elapsed so far
        about: algorithm, config, seed, dtype
        settings: of a sweep, one {name: value} each; None otherwise

    With privacy= a callback receives only published models: theta, and records of metrics that read nothing else.
    """

    rounds: np.ndarray
    records: dict[str, np.ndarray]
    risks: dict[str, np.ndarray]
    theta: Any
    round: int
    total: int
    seconds: float
    about: dict[str, Any]
    settings: list[dict[str, Any]] | None = None
    reasons: list[str] = dataclasses.field(default_factory=list)

    def __getitem__(self, name: str) -> np.ndarray:
        """A recorded quantity by name."""
        for found in (self.records, self.risks):
            if name in found:
                return found[name]
        raise KeyError(f"no {name!r} in the news; choose from {sorted([*self.records, *self.risks])}.")

    def stop(self, reason: str) -> None:
        """End the run here; `history.meta["stopped_by"]` gives the reason."""
        self.reasons.append(str(reason))

    def means(self) -> list[tuple[int, dict[str, float]]]:
        """(round, {name: mean over repeats}) of each new record, omitting missing values; for logs.

        In a sweep names begin with the index of the setting: "0/consensus".
        """
        rows = []
        for place, round in enumerate(np.asarray(self.rounds).tolist()):
            found = {name: values[..., place] for name, values in self.records.items()}
            found |= self.risks if round == self.round else {}
            rows.append((round, _finite(found, self.settings is not None)))
        return rows


def _finite(found: dict[str, np.ndarray], several: bool) -> dict[str, float]:
    means = {}
    for name, values in found.items():
        for place, one in enumerate(values if several else [values]):
            mean = float(np.mean(np.asarray(one, np.float64)))
            if np.isfinite(mean):
                means[f"{place}/{name}" if several else name] = mean
    return means

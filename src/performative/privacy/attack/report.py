"""What an attack found."""

import dataclasses
import math
from typing import Any


@dataclasses.dataclass(frozen=True)
class AttackResult:
    """epsilon is at least `lower`, with this confidence; `claimed` is the claimed epsilon (infinity for no claim).

    A lower bound below the claim proves nothing: another attack may find more. One above it refutes the claim.
    """

    method: str
    unit: str
    relation: str
    lower: float
    claimed: float
    delta: float
    confidence: float
    rows: int
    rounds: int
    trials: int
    seconds: float

    @property
    def alarm(self) -> bool:
        return self.lower > self.claimed

    @property
    def sentence(self) -> str:
        """A human-readable summary."""
        how = "replaced" if self.relation == "replace" else "added or removed"
        trials = f"{_count(self.rounds, 'round')}, {_count(self.trials, 'trial')}"
        found = (
            f"{self.method} (one {self.unit} of {self.rows} {how}, {trials}) show epsilon >= {self.lower:.3g} "
            f"at delta = {self.delta:.3g} with {100 * self.confidence:g}% confidence"
        )
        if math.isinf(self.claimed):
            return f"No claim to test: {found}."
        verdict = "ALARM" if self.alarm else "no alarm"
        return f"{verdict}: {found}; claimed: {self.claimed:.3g}."

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON-compatible values: infinity becomes None."""
        values = dataclasses.asdict(self)
        values["claimed"] = None if math.isinf(self.claimed) else self.claimed
        return {**values, "alarm": self.alarm, "sentence": self.sentence}


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"

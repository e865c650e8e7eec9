"""What was received and what happened to it, in counts and short lists of bounded size."""

import dataclasses
from collections import Counter
from typing import Any

# Maximum number of quarantined batches that are listed, and of points of the history.
NAMED, POINTS = 50, 400


@dataclasses.dataclass
class Tally:
    """Counts of batches and rows; the last refused batches, with the reason."""

    looks: int = 0
    rows: int = 0
    batches: int = 0
    seen_again: int = 0
    too_late: int = 0
    late_rows: int = 0
    rows_seen_again: int = 0
    quarantined: Counter[str] = dataclasses.field(default_factory=Counter)
    dropped: Counter[str] = dataclasses.field(default_factory=Counter)
    recent: list[dict[str, str]] = dataclasses.field(default_factory=list)

    def refuse(self, id: str, code: str, message: str) -> None:
        """Quarantine a batch: count it by code, and list it among the last."""
        self.quarantined[code] += 1
        self.recent = [*self.recent, {"batch": id[:200], "code": code, "message": message[:500]}][-NAMED:]

    def to_dict(self) -> dict[str, Any]:
        return vars(self) | {"quarantined": dict(self.quarantined), "dropped": dict(self.dropped)}

    @classmethod
    def from_dict(cls, told: dict[str, Any]) -> "Tally":
        return cls(**told | {name: Counter(told[name]) for name in ("quarantined", "dropped")})


class History:
    """At most `POINTS` points over all looks: when there are twice as many, every second one is dropped."""

    def __init__(self, points: list[dict[str, float]] | None = None, every: int = 1):
        self.points, self.every = points or [], every

    def add(self, look: int, **values: float) -> None:
        if look % self.every:
            return
        self.points.append({"look": float(look), **values})
        if len(self.points) > 2 * POINTS:
            self.every *= 2
            self.points = [point for point in self.points if point["look"] % self.every == 0]

"""What has been read already, in bounded memory."""

import hashlib
from collections import OrderedDict
from typing import Any

import numpy as np


class Seen:
    """The last `window` batches (id and digest) and deployments, and the last `rows` row ids.

    Batches older than the oldest remembered are recognized by their time: at or before `forgotten` they are too late.
    """

    def __init__(self, window: int = 4096, rows: int = 1 << 16):
        self.window, self.rows = window, rows
        self.batches: OrderedDict[str, tuple[str, float | None]] = OrderedDict()
        self.deployments: OrderedDict[str, None] = OrderedDict()
        self.ids: OrderedDict[str, None] = OrderedDict()
        self.refused: OrderedDict[str, None] = OrderedDict()
        self.forgotten: float | None = None
        self.forgotten_id: str | None = None

    def add_batch(self, id: str, digest: str, time: float | None) -> None:
        self.batches[id] = (digest, time)
        while len(self.batches) > self.window:
            self.forgotten_id, (_, old) = self.batches.popitem(last=False)
            if old is not None:
                self.forgotten = old if self.forgotten is None else max(self.forgotten, old)

    def add_deployment(self, name: str) -> None:
        self.deployments.pop(name, None)
        self.deployments[name] = None
        while len(self.deployments) > self.window:
            self.deployments.popitem(last=False)

    def add_refused(self, id: str, code: str) -> bool:
        """Whether this batch is refused for this fault for the first time."""
        key = _digest(f"{id}\x1f{code}")
        new = key not in self.refused
        self.refused[key] = None
        while len(self.refused) > self.window:
            self.refused.popitem(last=False)
        return new

    def add_rows(self, ids: np.ndarray) -> np.ndarray:
        """Remember rows; returns which of them are new."""
        fresh = np.zeros(len(ids), bool)
        for place, id in enumerate(ids):
            key = _digest(str(id))
            fresh[place] = key not in self.ids
            self.ids[key] = None
        while len(self.ids) > self.rows:
            self.ids.popitem(last=False)
        return fresh

    def to_dict(self) -> dict[str, Any]:
        return {
            "window": self.window,
            "rows": self.rows,
            "batches": [[id, digest, time] for id, (digest, time) in self.batches.items()],
            "deployments": list(self.deployments),
            "ids": list(self.ids),
            "refused": list(self.refused),
            "forgotten": self.forgotten,
            "forgotten_id": self.forgotten_id,
        }

    @classmethod
    def from_dict(cls, told: dict[str, Any]) -> "Seen":
        made = cls(told["window"], told["rows"])
        made.batches = OrderedDict((id, (digest, time)) for id, digest, time in told["batches"])
        made.deployments = OrderedDict.fromkeys(told["deployments"])
        made.ids = OrderedDict.fromkeys(told["ids"])
        made.refused = OrderedDict.fromkeys(told["refused"])
        made.forgotten, made.forgotten_id = told["forgotten"], told["forgotten_id"]
        return made


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

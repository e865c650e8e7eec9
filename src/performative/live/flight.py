"""Training clients of an asynchronous server: who was asked what, when, and which answers wait for a buffer."""

import dataclasses
import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from performative.live.gathering import Gathered
from performative.participation.asynchronous import Asynchronous


@dataclasses.dataclass
class Flight:
    """What an asynchronous server knows besides its model. It is not saved: a restarted server asks again, and answers
    to the previous one are void.

    Attributes:
        rule: buffer, concurrency and weights of stale updates
        requests, expected: of clients that are training
        began: the round in which each took its model
        asked: when (monotonic seconds) each was last asked
        due: the deadline of each
        arrived: answers beyond a full buffer, which come first in the next
    """

    rule: Asynchronous
    requests: dict[int, bytes] = dataclasses.field(default_factory=dict)
    expected: dict[int, dict[str, Any]] = dataclasses.field(default_factory=dict)
    began: dict[int, int] = dataclasses.field(default_factory=dict)
    asked: dict[int, float] = dataclasses.field(default_factory=dict)
    due: dict[int, float] = dataclasses.field(default_factory=dict)
    arrived: dict[int, Any] = dataclasses.field(default_factory=dict)

    def give_up(self) -> list[int]:
        """Clients that have not answered in time; they are idle again."""
        late = [client for client, when in self.due.items() if time.monotonic() > when and client not in self.arrived]
        self.end(late)
        return sorted(late)

    def starting(self, clients: int, rng: np.random.Generator) -> list[int]:
        """Who starts now: all idle clients, or as many of them, drawn uniformly, as keep C training."""
        idle = [client for client in range(clients) if client not in self.requests]
        free = self.rule.working(clients) - len(self.requests)
        return idle if free >= len(idle) else sorted(rng.choice(idle, max(free, 0), replace=False).tolist())

    def start(
        self, requests: dict[int, bytes], expected: dict[int, dict[str, Any]], round: int, seconds: float
    ) -> tuple[dict[int, bytes], dict[int, dict[str, Any]]]:
        """Start these clients with this round's model and a deadline in seconds; returns `requests` and `expected` of
        all that train."""
        self.requests |= requests
        self.expected |= expected
        self.began |= dict.fromkeys(requests, round)
        self.due |= dict.fromkeys(requests, time.monotonic() + seconds)
        return self.requests, self.expected

    def take(self, gathered: Gathered) -> None:
        """Keep the first B answers in `gathered`; the others wait for the next buffer."""
        rest = list(gathered.heard)[self.rule.buffer :]
        self.arrived = {client: gathered.heard.pop(client) for client in rest}

    def end(self, clients: Iterable[int]) -> None:
        """Mark clients as done, whatever their answer; they are idle again."""
        for client in clients:
            for known in (self.requests, self.expected, self.began, self.asked, self.due):
                known.pop(client, None)

    def ages(self, clients: Iterable[int], round: int) -> list[int]:
        """s_i: server updates since each took its model."""
        return [round - self.began[client] for client in clients]

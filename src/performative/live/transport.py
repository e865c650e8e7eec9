"""How messages reach clients. The server sees a client's number and bytes, whatever the transport."""

import dataclasses
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from performative.live.telling import tell_failure

# The reason given for a client number without a member.
VACANT = "no member has this number: it has not joined, or is no longer a member"


@dataclasses.dataclass(frozen=True)
class Reply:
    """A client's reply: bytes, or why there are none."""

    client: int
    content: bytes | None = None
    error: str = ""


class AbstractTransport(ABC):
    """Carries requests to clients and answers back."""

    @abstractmethod
    def online(self) -> set[int]:
        """The clients that can be reached now."""

    @abstractmethod
    def send(self, requests: dict[int, bytes], seconds: float) -> None:
        """Send requests; they expire after this many seconds."""

    @abstractmethod
    def receive(self, seconds: float) -> list[Reply]:
        """The replies that have arrived; waits at most this many seconds for one."""


class InProcess(AbstractTransport):
    """Clients as threads of this process, for rehearsals: the same bytes are exchanged, without a network.

    `answers[client](request)` is `Member.answer` of that client; if it raises, the server is told only the kind.
    """

    def __init__(self, answers: dict[int, Callable[[bytes], bytes]]):
        self._answers = answers
        self._back: queue.Queue[Reply] = queue.Queue()
        self._boxes: dict[int, queue.Queue[tuple[bytes, float] | None]] = {}

    def online(self) -> set[int]:
        return set(self._answers)

    def send(self, requests: dict[int, bytes], seconds: float) -> None:
        for client, request in requests.items():
            if client not in self._boxes:
                self._boxes[client] = queue.Queue()
                threading.Thread(target=self._serve, args=(client, self._boxes[client]), daemon=True).start()
            self._boxes[client].put((request, time.monotonic() + seconds))

    def _serve(self, client: int, box: "queue.Queue[tuple[bytes, float] | None]") -> None:
        while (entry := box.get()) is not None:
            request, until = entry
            if time.monotonic() > until:
                continue
            try:
                self._back.put(Reply(client, self._answers[client](request)))
            except Exception as error:
                self._back.put(Reply(client, None, tell_failure(error)))

    def receive(self, seconds: float) -> list[Reply]:
        try:
            found = [self._back.get(timeout=seconds)]
        except queue.Empty:
            return []
        while not self._back.empty():
            found.append(self._back.get())
        return found

    def close(self) -> None:
        for box in self._boxes.values():
            box.put(None)

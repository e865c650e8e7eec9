"""A watch that follows a folder or table: reads new batches, saves, sends alarms."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from performative.watch.monitor import Watch
from performative.watch.source import AbstractBatches, FileBatches, Found, Given, in_order
from performative.watch.webhook import Webhook

# The number of files whose size and time are remembered, to avoid reading them again; the watch itself remembers more.
_REMEMBERED = 4096


class Follower:
    """Reads batches from a place into a watch, sequentially.

    A batch is read once it is complete, as judged by `place`, or immediately with `once`. After a kill the state is
    that of the last save; later batches are read again, with the same result.

    Args:
        place: where batches appear: a folder or file (`FileBatches`), or a table (`TableBatches`)
        state: file for the watch's state; None to keep none
        save_every: batches between two saves; the last batch is always saved
    """

    def __init__(
        self,
        watch: Watch,
        place: Path | AbstractBatches,
        state: Path | None = None,
        webhook: Webhook | None = None,
        save_every: int = 1,
    ):
        self.watch, self.state, self.webhook, self.save_every = watch, state, webhook, save_every
        self.place = FileBatches(place) if isinstance(place, Path) else place
        self.read: dict[str, tuple[int, int]] = {}
        self.lock = threading.Lock()

    def pass_over(self, once: bool = False, told: Callable[[str, Any], None] | None = None) -> int:
        """Read all new batches; returns how many. A file with errors is quarantined."""
        taken = 0
        try:
            self.place.refresh()
        except Exception as error:
            with self.lock:
                self.watch.refuse("deployments", f"{type(error).__name__}: {error}")
        for found in self.place.found():
            if not self._is_due(found, once):
                continue
            for given in self._rows(found):
                with self.lock:
                    if isinstance(given.rows, str):
                        outcome = self.watch.refuse(given.id, given.rows)
                    else:
                        outcome = self.watch.update(given.rows, id=given.id, **given.about)
                taken += 1
                if told is not None:
                    told(given.id, outcome)
                if taken % self.save_every == 0 or outcome.alarms:
                    self.save()
                self._tell()
            self._remember(found)
        if taken:
            self.save()
        self._tell()
        return taken

    def _is_due(self, found: Found, once: bool) -> bool:
        if self.read.get(found.id) == found.signature:
            return False
        forgotten = self.watch.seen.forgotten_id
        if forgotten is not None and in_order(found.id) <= in_order(forgotten):  # read long ago, or too late
            return False
        return once or self.place.settled(found)

    def _rows(self, found: Found) -> list[Given]:
        try:
            return self.place.read(found)
        except Exception as error:  # whatever a file or a database raises when it is read
            return [Given(found.id, f"{type(error).__name__}: {error}")]

    def _remember(self, found: Found) -> None:
        self.read.pop(found.id, None)
        self.read[found.id] = found.signature
        while len(self.read) > _REMEMBERED:
            self.read.pop(next(iter(self.read)))

    def _tell(self) -> None:
        """Send pending alarms; a webhook that fails is retried at the next pass."""
        if self.webhook is None:
            return
        with self.lock:
            waiting = self.watch.alarms.waiting()
        for alarm in waiting:
            if not self.webhook.tell(alarm):
                return
            with self.lock:
                alarm["told"] = True
            self.save()

    def save(self) -> None:
        if self.state is not None:
            with self.lock:
                self.watch.save(self.state)

    def follow(self, every: float, stop: threading.Event, told: Callable[[str, Any], None] | None = None) -> None:
        """Read new batches until stopped; an interrupt ends it, with everything read so far saved."""
        while not stop.is_set():
            try:
                self.pass_over(told=told)
            except Exception as error:  # such as a folder that is temporarily gone
                with self.lock:
                    self.watch.refuse(self.place.name, f"{type(error).__name__}: {error}")
            stop.wait(every)

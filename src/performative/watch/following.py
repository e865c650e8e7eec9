"""A watch that follows a folder: reads what is new, saves, tells."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from performative.watch.monitor import Watch
from performative.watch.source import Found, Models, in_order, list_batches, read_rows, split_table
from performative.watch.webhook import Webhook

# Files whose size and time are remembered, so that they are not read again; the watch itself knows more of them.
_REMEMBERED = 4096


class Follower:
    """Reads batches of a place into a watch, one after another.

    A file is read once its size is the same at two listings, or at once with `once`. After a kill the state is that of
    the last save; what came after it is read again, with the same result.

    Args:
        place: a folder of CSV and Parquet files, or one file whose column `deployment` tells batches apart
        state: the file of the watch's state; None keeps none
        save_every: batches between two saves; the last one is always saved
    """

    def __init__(
        self, watch: Watch, place: Path, state: Path | None = None, webhook: Webhook | None = None, save_every: int = 1
    ):
        self.watch, self.place, self.state, self.webhook, self.save_every = watch, place, state, webhook, save_every
        self.models = Models(place if place.is_dir() else place.parent)
        self.read: dict[str, tuple[int, int]] = {}
        self.growing: dict[str, tuple[int, int]] = {}
        self.lock = threading.Lock()

    def pass_over(self, once: bool = False, told: Callable[[str, Any], None] | None = None) -> int:
        """Read all that is new; returns how many batches were. Errors of a file put it into quarantine."""
        taken = 0
        try:
            self.models.refresh()
        except Exception as error:
            with self.lock:
                self.watch.refuse("deployments", f"{type(error).__name__}: {error}")
        for found in list_batches(self.place):
            if not self._is_due(found, once):
                continue
            for id, rows in self._rows(found):
                with self.lock:
                    outcome = self.watch.refuse(id, rows) if isinstance(rows, str) else self.watch.update(rows, id=id)
                taken += 1
                if told is not None:
                    told(id, outcome)
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
        if once or self.growing.get(found.id) == found.signature:
            self.growing.pop(found.id, None)
            return True
        self.growing[found.id] = found.signature
        return False

    def _rows(self, found: Found) -> list[tuple[str, Any]]:
        try:
            if self.place.is_file():
                return [(id, self.models.complete(rows)) for id, rows in split_table(found.path)]
            return [(found.id, self.models.complete(read_rows(found.path)))]
        except Exception as error:  # whatever a file does when it is read
            return [(found.id, f"{type(error).__name__}: {error}")]

    def _remember(self, found: Found) -> None:
        self.read.pop(found.id, None)
        self.read[found.id] = found.signature
        while len(self.read) > _REMEMBERED:
            self.read.pop(next(iter(self.read)))

    def _tell(self) -> None:
        """Alarms that no webhook was told yet; a webhook that fails is tried again at the next pass."""
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
        """Pass over the place until told to stop; an interrupt ends it, with all that was read saved."""
        while not stop.is_set():
            try:
                self.pass_over(told=told)
            except Exception as error:  # such as a folder that is gone for a while
                with self.lock:
                    self.watch.refuse(self.place.name, f"{type(error).__name__}: {error}")
            stop.wait(every)

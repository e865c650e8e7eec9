"""Defer Ctrl-C where it would leave an untracked process running: it is recorded, and raised later."""

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Finish the block first; then raise KeyboardInterrupt if one arrived meanwhile.

    The system interrupts only the main thread, so this is a no-op in other threads.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = []

    def note(*_: object) -> None:
        came.append(True)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt

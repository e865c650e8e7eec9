"""Ctrl-C at a moment at which it would leave something running that nobody knows of: noted, and raised later."""

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """What is inside is finished first; then KeyboardInterrupt is raised where one came meanwhile.

    Only the main thread is interrupted by the system, so elsewhere there is nothing to hold.
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

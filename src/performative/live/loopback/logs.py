"""Limit the logs of Flower's processes, which keep growing: the last bytes, and at most as many again in NAME.log.1."""

import os
import shutil
import stat
import threading
import time
from pathlib import Path

# Bytes of a log, and seconds between two checks.
LONGEST, _LOOK = 4 << 20, 30.0


def is_long(path: Path) -> bool:
    return path.exists() and path.stat().st_size > LONGEST


def shorten(path: Path) -> bool:
    """Empty a log that is too long, after copying it to NAME.log.1.

    Its writers append, so they continue at the beginning. A line written between copying and emptying is lost.
    """
    if not is_long(path):
        return False
    shutil.copyfile(path, path.with_name(f"{path.name}.1"))
    os.truncate(path, 0)
    return True


def keep_output_short() -> None:
    """Keep this process's output short, if it goes to a file, until the process ends."""
    if not stat.S_ISREG(os.fstat(1).st_mode):
        return
    path = Path(os.readlink("/proc/self/fd/1"))

    def look() -> None:
        while True:
            time.sleep(_LOOK)
            shorten(path)

    threading.Thread(target=look, daemon=True, name="log").start()

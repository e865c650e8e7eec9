"""Logs of Flower's processes, which grow by the hour: the last so many bytes, and as many again in NAME.log.1."""

import os
import shutil
import stat
import threading
import time
from pathlib import Path

# Bytes of a log, and seconds between two looks at one.
LONGEST, _LOOK = 4 << 20, 30.0


def is_long(path: Path) -> bool:
    return path.exists() and path.stat().st_size > LONGEST


def shorten(path: Path) -> bool:
    """Let a log that is too long begin anew; what it held lies in NAME.log.1.

    Those who write to it append, and so go on at its beginning. A line that comes between copy and cut is lost.
    """
    if not is_long(path):
        return False
    shutil.copyfile(path, path.with_name(f"{path.name}.1"))
    os.truncate(path, 0)
    return True


def keep_output_short() -> None:
    """Look after the file that this process writes to, if it is one, until it ends."""
    if not stat.S_ISREG(os.fstat(1).st_mode):
        return
    path = Path(os.readlink("/proc/self/fd/1"))

    def look() -> None:
        while True:
            time.sleep(_LOOK)
            shorten(path)

    threading.Thread(target=look, daemon=True, name="log").start()

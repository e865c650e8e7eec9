"""Files that appear whole or not at all."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_by(path: Path, write: Callable[[Any], object]) -> None:
    """Write beside, flush to the disk, rename, and flush the folder that the name stands in."""
    part = path.with_name(f".{path.name}.part")
    try:
        with open(part, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except Exception:
        part.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_whole(path: Path, content: bytes) -> None:
    """The same for bytes that are there already."""
    write_by(path, lambda file: file.write(content))

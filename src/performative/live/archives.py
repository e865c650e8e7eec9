"""Folders of earlier runs, moved aside; the log of the next one continues theirs."""

import os
import shutil
import time
from pathlib import Path

from performative.live.journal import succeed
from performative.live.server_store import first_version


def archive(folder: Path, version: int) -> Path:
    """Move a server's folder aside, and put one in its place for a new run; returns where the old one is.

    The new folder is complete before it takes the place: after an interruption `finish_archive` puts it there. Its
    versions of models begin with `version`.
    """
    stem = f"{folder.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    names = (stem, *(f"{stem}-{number}" for number in range(2, 100)))
    aside = next(place for name in names if not (place := folder.with_name(name)).exists())
    fresh = _next_of(folder)
    shutil.rmtree(fresh, ignore_errors=True)
    first_version(fresh, version)
    succeed(folder, fresh, aside.name)
    os.rename(folder, aside)
    os.rename(fresh, folder)
    return aside


def finish_archive(folder: Path) -> None:
    """Put the new folder in its place, if `archive` was interrupted before it could."""
    if not folder.exists() and _next_of(folder).exists():
        os.rename(_next_of(folder), folder)


def _next_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}-next")

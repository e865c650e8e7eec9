"""`write`: one interactive HTML file of a run, a sweep, an audit, or a folder of results."""

import functools
import os
from pathlib import Path
from typing import Any

from performative._base.arguments import checked
from performative._base.files import read_target, write_whole
from performative.history import History
from performative.sweep import Sweep


@checked
def write(thing: Any, path: str | os.PathLike[str], title: str | None = None) -> Path:
    """Write one self-contained HTML file: interactive plots, light and dark, no network.

    Args:
        thing: a `History`, a `Sweep`, an `AuditReport`, the path of a history that `History.save` wrote (.nc), or the
            path of a folder of results (<paper>/<name>/manifest.json, as written by `performative reproduce`)
        path: the file to write, atomically
        title: heading of the page, instead of the default

    Returns the path. The page contains the data, thinned to a few hundred points per curve.
    """
    target = read_target(path, "an HTML file")
    write_whole(target, make(thing, title))
    return target


@functools.singledispatch
def make(thing: Any, title: str | None = None) -> bytes:
    """The page that `write` writes. Higher layers register their own: `make.register(AuditReport, ...)`."""
    raise TypeError(
        "report.write takes a History, a Sweep, an AuditReport, or the path of a .nc history or of a folder of "
        f"results; got {type(thing).__name__}."
    )


@make.register
def _(thing: History, title: str | None = None) -> bytes:
    from performative.report.run_page import run_page

    return run_page(thing, title)


@make.register
def _(thing: Sweep, title: str | None = None) -> bytes:
    from performative.report.sweep_page import sweep_page

    return sweep_page(thing, title)


@make.register(str)
@make.register(os.PathLike)
def _(thing: str | os.PathLike[str], title: str | None = None) -> bytes:
    return _from_disk(Path(thing), title)


def _from_disk(place: Path, title: str | None) -> bytes:
    if place.is_dir():
        from performative.report.gallery import gallery_page

        return gallery_page(place, title)
    if not place.exists():
        raise FileNotFoundError(f"thing: there is no {place}; pass a history (.nc) or a folder of results.")
    if place.suffix != ".nc":
        raise ValueError(f"thing={str(place)!r}: pass a history written by History.save (.nc), or a folder of results.")
    from performative.report.run_page import run_page

    try:
        history = History.load(place)
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(f"{place} is not a history written by History.save ({error}).") from error
    return run_page(history, title or f"{place.stem}: a run of {history.meta.get('algorithm', '?')}")

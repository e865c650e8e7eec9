"""A progress bar where someone is watching."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(
    label: str, total: int, show: bool | None, unit: str = "rounds"
) -> Iterator[Callable[[int, Callable[[], str]], None]]:
    """Yields `update(done, note)`. None shows a bar where standard error is a terminal; `unit` is what is counted."""
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda done, note: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=total, note="compiling")
        yield lambda done, note: bar.update(task, completed=done, note=note())

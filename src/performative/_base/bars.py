"""A progress bar for interactive use: on a terminal, or below the cell of a notebook."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape

from performative._base.notebook import in_notebook

Update = Callable[[int, Callable[[], str]], None]


@contextmanager
def progress_bar(label: str, total: int, show: bool | None, unit: str = "rounds") -> Iterator[Update]:
    """Yield `update(done, note)`. show=None shows a bar if standard error is a terminal; `unit` labels the count."""
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda done, note: None
        return
    with (_in_cell if in_notebook() else _on_terminal)(label, total, unit) as update:
        yield update


@contextmanager
def _on_terminal(label: str, total: int, unit: str) -> Iterator[Update]:
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


@contextmanager
def _in_cell(label: str, total: int, unit: str) -> Iterator[Update]:
    """One output that is replaced as the work goes on; rich's own needs widgets, and warns where there are none."""
    from IPython.display import display

    def shown(done: int, note: str) -> dict[str, str]:
        counted = f"{done}/{total} {unit}"
        bar = f'<progress value="{done}" max="{total}" aria-label="{escape(label, quote=True)}"></progress>'
        told = f'<span style="font-family:monospace">{escape(label)} {bar} {counted} {escape(note)}</span>'
        return {"text/plain": f"{label} {counted} {note}".strip(), "text/html": told}

    handle = display(shown(0, "compiling"), raw=True, display_id=True)  # type: ignore[no-untyped-call]  # IPython's
    yield lambda done, note: handle.update(shown(done, note()), raw=True)

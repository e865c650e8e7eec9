"""`performative demo`."""

from pathlib import Path
from typing import Annotated

import typer

from performative.cli.output import Json, check_folder, reporting


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the picture and the page.")] = Path(
        "performative-demo"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds and seeds.")] = False,
    as_json: Json = False,
) -> None:
    """Ten synthetic banks score applicants who react to the score: solved and plotted in under a minute."""
    with reporting(as_json) as reporter:
        from performative.cli.demonstration import run_demo, write_demo
        from performative.cli.demonstration.words import WORDS, terminal_tables

        check_folder(out)
        outcome = run_demo(quick=quick)
        paths = write_demo(outcome, out)
        for thing in terminal_tables(outcome):
            reporter.show(thing)
            reporter.show()
        for kind, path in paths.items():
            reporter.path(kind, path)
        told = {**outcome.numbers, "findings": WORDS.to_json(outcome.findings)}
        reporter.result({"status": "completed", **told, "files": {k: str(p) for k, p in paths.items()}})

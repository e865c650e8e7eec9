"""`performative demo`."""

from pathlib import Path
from typing import Annotated

import typer

from performative.cli.output import Exit, Failure, Json, reporting


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the picture and the page.")] = Path(
        "performative-demo"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds and seeds.")] = False,
    as_json: Json = False,
) -> None:
    """Ten made-up banks score applicants who answer to the score: solved and drawn in under a minute."""
    with reporting(as_json) as reporter:
        from performative.cli.demonstration import run_demo, write_demo
        from performative.cli.demonstration.words import WORDS, terminal_tables

        if out.exists() and not out.is_dir():
            raise Failure(f"--out {out}: this is a file; give a folder.", Exit.BAD_INPUT)
        outcome = run_demo(quick=quick)
        paths = write_demo(outcome, out)
        for thing in terminal_tables(outcome):
            reporter.show(thing)
            reporter.show()
        for kind, path in paths.items():
            reporter.path(kind, path)
        told = {**outcome.numbers, "findings": WORDS.to_json(outcome.findings)}
        reporter.result({"status": "completed", **told, "files": {k: str(p) for k, p in paths.items()}})

"""`performative doctor`."""

from pathlib import Path
from typing import Annotated

import typer

from performative.cli.output import Json, reporting, show_checks


def doctor(
    folder: Annotated[Path, typer.Option("--folder", help="Folder for results.")] = Path(),
    as_json: Json = False,
) -> None:
    """Check this installation: versions, extras, plugins, memory, disk, device, and a run with a known answer.

    Exits with code 1 if something is wrong; each line gives the remedy. `performative federation doctor` checks the
    server or a member of a federation.
    """
    with reporting(as_json) as reporter:
        from performative.cli.installation import examine

        with reporter.errors.status("checking"):
            found = list(examine(folder))
        show_checks(reporter, found)
